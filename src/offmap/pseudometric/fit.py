"""Train pseudometrics by contrast on minibatches."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from offmap.pseudometric.learned import Pseudometric
from offmap.pseudometric.loss import info_nce
from offmap.pseudometric.pairs import positive_pairs


@dataclass(frozen=True)
class PseudometricConfig:
    """Settings of the contrastive loss; `literal()` gives the paper's text to the letter."""

    form: Literal["diagonal", "full"] = "diagonal"
    epsilon: float = 0.5
    """ε: how far apart the inputs of a positive pair must be, in the units of `standardize`."""
    standardize: bool = True
    """Centre and scale the inputs first: cosine similarity is about the origin."""
    standardize_outputs: bool = True
    """Measure each output in units of its spread when looking for positive pairs."""
    temperature: float = 0.1
    positive_in_denominator: bool = False
    threshold: float = 0.05
    """Drop directions lighter than this fraction of the heaviest."""
    steps: int = 600
    batch: int = 128
    learning_rate: float = 0.02
    max_points: int = 1500
    """Larger data sets are thinned at random to this many points."""

    @staticmethod
    def literal() -> "PseudometricConfig":
        """The loss as printed: raw inputs, no temperature, ε = 0."""
        return PseudometricConfig(
            epsilon=0.0, standardize=False, standardize_outputs=False, temperature=1.0
        )


def fit_pseudometric(
    inputs: Float[np.ndarray, "N d"],
    outputs: Float[np.ndarray, "N p"],
    names: tuple[str, ...],
    *,
    key: PRNGKeyArray,
    config: PseudometricConfig,
) -> Pseudometric:
    """Learn under which pseudometric inputs with like outputs are close (paper IV-A-1)."""
    return fit_pseudometrics(inputs, outputs[None], names, key=key, config=config)[0]


def fit_pseudometrics(
    inputs: Float[np.ndarray, "N d"],
    outputs: Float[np.ndarray, "c N p"],
    names: tuple[str, ...],
    *,
    key: PRNGKeyArray,
    config: PseudometricConfig,
) -> list[Pseudometric]:
    """Learn one pseudometric for each of c sets of outputs over the same inputs, side by side."""
    if len(inputs) < 4:
        raise ValueError(
            f"A pseudometric is learned from pairs and needs at least 4 points; got {len(inputs)}. "
            f"Give more data."
        )
    key, thinning = jax.random.split(key)
    if len(inputs) > config.max_points:
        chosen = np.asarray(jax.random.permutation(thinning, len(inputs)))[: config.max_points]
        inputs, outputs = inputs[chosen], outputs[:, chosen]
    z, scale = _standardized(inputs, config.standardize)
    partners = np.stack(
        [
            positive_pairs(z, _standardized(output, config.standardize_outputs)[0], config.epsilon)
            for output in outputs
        ]
    )
    factors, losses = _train(
        jax.device_put(z), jax.device_put(partners), jax.random.split(key, len(outputs)), config
    )
    factors = np.asarray(factors)
    P = np.swapaxes(factors, 1, 2) @ factors
    P = P / np.maximum(np.max(np.abs(P), axis=(1, 2), keepdims=True), 1e-300)
    P, scale, losses = jax.device_put((list(P), scale, list(np.asarray(losses))))
    return [
        Pseudometric(P_k, scale, loss, config.form == "diagonal", tuple(names))
        for P_k, loss in zip(P, losses, strict=True)
    ]


def _standardized(
    values: Float[np.ndarray, "N d"], standardize: bool
) -> tuple[Float[np.ndarray, "N d"], Float[np.ndarray, " d"]]:
    """Centred and scaled values with their scale; columns that do not vary are only centred."""
    if not standardize:
        return values, np.ones(values.shape[1])
    spread = values.std(axis=0)
    # A column that varies at round-off level carries no information to scale up.
    flat = spread <= 1e-9 * np.maximum(np.abs(values).max(axis=0), 1e-300)
    scale = np.where(flat, 1.0, spread)
    return np.where(flat, 0.0, (values - values.mean(axis=0)) / scale), scale


@partial(jax.jit, static_argnames="config")
def _train(
    z: Float[Array, "N d"],
    partners: Int[Array, "c N"],
    keys: Key[Array, " c"],
    config: PseudometricConfig,
) -> tuple[Float[Array, "c d d"], Float[Array, "c steps"]]:
    """Adam on minibatches, one run for each row of partners."""
    count, d = z.shape
    batch = min(config.batch, count)
    optimiser = optax.adam(config.learning_rate)

    def factor_of(parameters: Float[Array, "..."]) -> Float[Array, "d d"]:
        return jnp.diag(parameters) if config.form == "diagonal" else parameters

    def loss(parameters, chosen, partner):
        others = (chosen[None, :] != chosen[:, None]) & (
            chosen[None, :] != partner[chosen][:, None]
        )
        return info_nce(
            factor_of(parameters),
            z[chosen],
            z[partner[chosen]],
            others,
            temperature=config.temperature,
            positive_in_denominator=config.positive_in_denominator,
        )

    def run(partner, key):
        start, draws = jax.random.split(key)
        shape = (d,) if config.form == "diagonal" else (d, d)
        noise = 0.1 * jax.random.normal(start, shape)
        parameters = (jnp.ones(d) if config.form == "diagonal" else jnp.eye(d)) + noise

        def step(carry, draw):
            parameters, state = carry
            chosen = jax.random.choice(draw, count, (batch,), replace=False)
            value, gradient = jax.value_and_grad(loss)(parameters, chosen, partner)
            update, state = optimiser.update(gradient, state)
            return (optax.apply_updates(parameters, update), state), value

        carry = (parameters, optimiser.init(parameters))
        (parameters, _), losses = jax.lax.scan(step, carry, jax.random.split(draws, config.steps))
        return factor_of(parameters), losses

    return jax.vmap(run)(partners, keys)
