"""Taking a module apart once changes what a call costs, and nothing else."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap import calls
from offmap.calls import Unpacked


class Line(eqx.Module):
    slope: jax.Array
    offset: jax.Array
    activation: object = eqx.field(static=True)
    power: int = 1

    def __call__(self, x):
        return self.activation(self.slope * x + self.offset) ** self.power


def scaled(line, x, factor=1.0):
    return factor * jax.vmap(line)(x)


def line(slope, power=1, activation=jnp.tanh):
    return Line(jnp.array(slope), jnp.array(0.25), activation, power)


def test_a_call_gives_what_the_module_gives():
    x = np.linspace(-1, 1, 7)
    for module in (line(2.0), line(-1.0, power=3), line(0.5, activation=jnp.sin)):
        found = Unpacked(module).call(scaled, x, factor=3.0)
        np.testing.assert_allclose(found, 3.0 * jax.vmap(module)(jnp.asarray(x)), rtol=1e-14)


def test_modules_of_one_kind_share_a_compiled_program():
    x = np.linspace(-1, 1, 5)
    Unpacked(line(2.0)).call(scaled, x)
    compiled = calls._call._cache_size()
    again = Unpacked(line(-7.0)).call(scaled, x)
    np.testing.assert_allclose(again, np.tanh(-7.0 * x + 0.25), rtol=1e-14)
    assert calls._call._cache_size() == compiled


@pytest.mark.parametrize(
    ("module", "shape", "options"),
    [
        (line(2.0, power=2), 5, {}),
        (line(2.0, activation=jnp.sin), 5, {}),
        (line(2.0), 6, {}),
        (line(2.0), 5, {"factor": 2.0}),
    ],
    ids=["a number that is no array", "a static field", "a shape", "an option"],
)
def test_another_kind_is_compiled_anew(module, shape, options):
    calls._call.clear_cache()  # what other tests compiled may fill JAX's cache to its bound
    Unpacked(line(2.0)).call(scaled, np.zeros(5))
    compiled = calls._call._cache_size()
    Unpacked(module).call(scaled, np.zeros(shape), **options)
    assert calls._call._cache_size() == compiled + 1
