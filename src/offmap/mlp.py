"""A neural ensemble: the regressor for those who would rather not use Gaussian processes."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from offmap.gp.expansion import Scaling
from offmap.regressor import AbstractRegressor

_LEAST_NOISE = 1e-3  # standard deviation in units of an output's spread


@dataclass(frozen=True)
class MLPConfig:
    """Settings of an ensemble of multilayer perceptrons."""

    members: int = 5
    width: int = 64
    depth: int = 2
    steps: int = 3000
    batch: int = 512
    """Samples of one step of Adam; smaller data sets are used whole."""
    learning_rate: float = 3e-3
    share: float = 0.9
    """Of the samples that each member sees, so that members differ where data do not decide."""


class MLPEnsemble(AbstractRegressor):
    """The mean of several networks; their spread says where the data left them free.

    Every source of data has its own learned noise level, as for the Gaussian processes.
    """

    weights: tuple[Float[Array, "members _ _"], ...]
    biases: tuple[Float[Array, "members _"], ...]
    """Of each layer; tanh stands between layers."""
    log_noise: Float[Array, "members sources p"]
    """Logarithm of the standard deviation of each source, in units of the outputs' spread."""
    scaling: Scaling
    count: int = eqx.field(static=True)
    config: MLPConfig = eqx.field(static=True)

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " p"]:
        """Mean of the members at one point."""
        return jnp.mean(self.members(x), axis=0)

    def variance(self, x: Float[Array, " d"]) -> Float[Array, " p"]:
        """Spread of the members at one point."""
        return jnp.var(self.members(x), axis=0, ddof=1)

    def noise_level(self) -> Float[np.ndarray, " p"]:
        """Standard deviation of the first source's noise, in units of each output's spread."""
        return np.asarray(jnp.exp(jnp.mean(self.log_noise[:, 0], axis=0)))

    def points(self) -> int:
        """Number of samples it was trained on."""
        return self.count

    def conditioned(
        self, x: Float[np.ndarray, "N d"], y: Float[np.ndarray, "N p"]
    ) -> "MLPEnsemble":
        """Networks of the same shape trained on other data."""
        return fit_mlp(x, y, np.zeros(len(x), dtype=int), key=jax.random.key(0), config=self.config)

    def mean_only(self) -> "MLPEnsemble":
        """The ensemble itself: it keeps no data."""
        return self

    def members(self, x: Float[Array, " d"]) -> Float[Array, "members p"]:
        """Prediction of each member at one point."""
        z = (x - self.scaling.x_mean) / self.scaling.x_scale
        values = jnp.tile(z, (self.log_noise.shape[0], 1))
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = jnp.tanh(values) if i else values
            values = jnp.einsum("koi,ki->ko", weight, values) + bias
        return values * self.scaling.y_scale[None] + self.scaling.y_mean[None]


def fit_mlp(
    x: Float[np.ndarray, "N d"],
    y: Float[np.ndarray, "N p"],
    source: Int[np.ndarray, " N"],
    *,
    key: PRNGKeyArray,
    config: MLPConfig,
) -> MLPEnsemble:
    """Train an ensemble by maximum likelihood; the largest source sets the scaling."""
    codes, position, counts = np.unique(source, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")  # the primary source comes first
    rank = np.argsort(order)[position]
    scaling = Scaling.of(x[rank == 0], y[rank == 0])
    z = (jnp.asarray(x) - scaling.x_mean[None]) / scaling.x_scale[None]
    targets = (jnp.asarray(y) - scaling.y_mean[None]) / scaling.y_scale[None]
    networks, log_noise = _train(
        jax.random.split(key, config.members), z, targets, jnp.asarray(rank), len(codes), config
    )
    weights = tuple(layer.weight for layer in networks.layers)
    biases = tuple(layer.bias for layer in networks.layers)
    return MLPEnsemble(weights, biases, log_noise, scaling, len(x), config)


@eqx.filter_jit
def _train(keys, x, y, source, sources, config):
    def member(key):
        network_key, share_key, batch_key = jax.random.split(key, 3)
        network = eqx.nn.MLP(
            x.shape[1], y.shape[1], config.width, config.depth, jnp.tanh, key=network_key
        )
        trained, frozen = eqx.partition(network, eqx.is_inexact_array)
        log_noise = jnp.full((sources, y.shape[1]), jnp.log(0.1))
        own = jax.random.permutation(share_key, x.shape[0])
        own = own[: max(1, int(config.share * x.shape[0]))]
        schedule = optax.cosine_decay_schedule(config.learning_rate, config.steps, 1e-3)
        optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))

        def loss(parameters, rows):
            weights, log_noise = parameters
            error = jax.vmap(eqx.combine(weights, frozen))(x[rows]) - y[rows]
            floored = jnp.logaddexp(log_noise, jnp.log(_LEAST_NOISE))[source[rows]]
            return jnp.mean(0.5 * (error * jnp.exp(-floored)) ** 2 + floored)

        def step(state, key):
            parameters, memory = state
            rows = own
            if own.shape[0] > config.batch:
                rows = jax.random.choice(key, own, (config.batch,))
            change, memory = optimiser.update(jax.grad(loss)(parameters, rows), memory)
            return (optax.apply_updates(parameters, change), memory), None

        begin = (trained, log_noise)
        ((trained, log_noise), _), _ = jax.lax.scan(
            step, (begin, optimiser.init(begin)), jax.random.split(batch_key, config.steps)
        )
        return eqx.combine(trained, frozen), jnp.logaddexp(log_noise, jnp.log(_LEAST_NOISE))

    return eqx.filter_vmap(member)(keys)
