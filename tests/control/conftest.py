"""One small model put together by hand."""

import jax.numpy as jnp
import pytest
from control_models import logs, predictor_of

from offmap.config import Config
from offmap.features import Features
from offmap.model import Model
from offmap.pseudometric import Pseudometric, retained_inputs
from offmap.summary import Choices
from offmap.systems import unicycle


@pytest.fixture(scope="session")
def model():
    """A unicycle that forgot where it is, projected onto the constraint it obeys."""
    dataset = logs(unicycle(), (3.0, 3.0, 1.0), 6, 20)
    names = dataset.input_names
    features = Features(names, dataset.angle_indices)
    weights = jnp.diag(jnp.array([0.0, 0.01, 0.4, 0.3, 0.8, 1.0]))
    metric = Pseudometric(weights, jnp.ones(6), jnp.zeros(1), True, features.names)
    reduction = retained_inputs(metric, 0.05, features)
    predictor = predictor_of(unicycle(), dataset, "affine", "dictionary", False, reduction)
    return Model(
        predictor,
        predictor.dynamics,
        Config(),
        dataset,
        "offline",
        metric,
        None,
        Choices({}, {}),
        0,
    )
