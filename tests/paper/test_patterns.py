"""Statistical: the sparsity patterns of the paper, over ten seeds (`make test-slow`)."""

import jax
import numpy as np
import pytest

from offmap.constraint import ConstraintConfig, fit_constraint
from offmap.paper import EXPERIMENTS
from offmap.pseudometric import PseudometricConfig, fit_pseudometric, retained_inputs

KEPT = {
    "unicycle": ("theta", "omega", "v"),
    "quadrotor": ("phi", "vx", "vz", "omega", "u1", "u2"),
}
ROWS = {
    "unicycle": (("theta",),),
    "quadrotor": (("vx",), ("vz",), ("omega",), ("phi",)),
}


@pytest.mark.slow
@pytest.mark.parametrize("ood", [False, True])
@pytest.mark.parametrize("name", list(KEPT))
def test_patterns_are_right_on_nine_of_ten_seeds(name, ood):
    experiment = EXPERIMENTS[name]
    dynamics, constraints = 0, 0
    for seed in range(10):
        dataset = experiment.offline(jax.random.key(seed), out_of_distribution=ood)
        samples = dataset.samples()
        metric = fit_pseudometric(
            np.concatenate([samples.x, samples.u], axis=1),
            samples.xdot,
            dataset.input_names,
            key=jax.random.key(seed),
            config=PseudometricConfig(),
        )
        dynamics += retained_inputs(metric, 0.05).names == KEPT[name]
        found = fit_constraint(
            experiment.system.f,
            samples,
            0,
            dataset.state_names,
            key=jax.random.key(seed),
            config=ConstraintConfig(kernels=("linear",)),
        )
        constraints += found.retained == ROWS[name]
    print(f"{name}, {'OOD' if ood else 'ID'}: dynamics {dynamics}/10, constraint {constraints}/10")
    assert dynamics >= 9
    assert constraints >= 9
