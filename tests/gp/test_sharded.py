"""The likelihood over several devices, against the one of a single device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from offmap.gp.sharded import device_mesh

ROOT = Path(__file__).parent.parent.parent
CODE = """
import json
import jax, jax.numpy as jnp, numpy as np
from jax.flatten_util import ravel_pytree
import offmap
from offmap.gp.fit import _negative_log_likelihood, maximise_likelihood
from offmap.gp.kernels import kernel_named
from offmap.gp.sharded import device_mesh

rng = np.random.default_rng(0)
x = jnp.asarray(rng.normal(size=(101, 3)))  # does not divide by 4
y = np.sin(1.3 * np.asarray(x[:, 0])) + 0.4 * np.asarray(x[:, 1]) + 0.1 * rng.normal(size=101)
found = {"devices": jax.device_count()}
for name in ("rbf+linear", "affine"):
    parameters = kernel_named(name, 3, (2,)), np.log(1e-2)
    one, four = (
        _negative_log_likelihood(parameters, (x, y), mesh) for mesh in (None, device_mesh(4))
    )
    found[name] = [np.append(ravel_pytree(g)[0], v).tolist() for v, g in (one, four)]
fits = [
    maximise_likelihood(
        kernel_named("rbf", 3), x, jnp.asarray(y)[:, None], iterations=4, devices=count
    )
    for count in (1, 4)
]
found["fit"] = [np.asarray(ravel_pytree(fit)[0]).tolist() for fit in fits]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    environment = os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("kernel", ["rbf+linear", "affine"])
def test_four_devices_agree_with_one(found, kernel):
    one, four = found[kernel]
    assert found["devices"] == 4
    assert four == pytest.approx(one, rel=1e-10, abs=1e-10)


def test_a_search_over_four_devices_ends_where_that_of_one_does(found):
    one, four = found["fit"]
    assert four == pytest.approx(one, rel=1e-6)


def test_more_devices_than_there_are_is_refused():
    with pytest.raises(ValueError, match=f"where JAX sees {jax.device_count()}"):
        device_mesh(jax.device_count() + 1)
