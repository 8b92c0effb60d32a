"""Wheeled robots beyond the paper's unicycle: saturating, slipping, steered, towing, rolling."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from offmap.systems.base import Box, System
from offmap.types import VectorField


def no_side_slip(x: Float[Array, " n"]) -> Float[Array, "1 q"]:
    """Γ of every robot with states (px, py, theta, …) whose wheels do not slide sideways."""
    row = jnp.zeros(x.shape[0] + 1)
    return row.at[0].set(-jnp.sin(x[2])).at[1].set(jnp.cos(x[2]))[None]


def tanh_unicycle(gain: float = 0.3) -> System:
    """A unicycle whose actuators saturate and whose speed depends on the heading (c = 1).

    ṗ = (1 + gain cos 2θ) 1.2 tanh(v) (cos θ, sin θ), θ' = 0.2 tanh(8 ω): outside every library of
    sines and cosines. `gain=0` leaves the saturation alone.
    """

    def f(x: Float[Array, " 3"], u: Float[Array, " 2"]) -> Float[Array, " 3"]:
        theta, (omega, v) = x[2], u
        speed = (1 + gain * jnp.cos(2 * theta)) * 1.2 * jnp.tanh(v)
        turn = 0.2 * jnp.tanh(8 * omega)
        return jnp.stack([speed * jnp.cos(theta), speed * jnp.sin(theta), turn])

    return _planar("tanh-unicycle", f)


def slipping_unicycle(slip: float = 0.3) -> System:
    """A unicycle that slides outwards in turns: the ideal constraint is false (c = 0)."""

    def f(x: Float[Array, " 3"], u: Float[Array, " 2"]) -> Float[Array, " 3"]:
        theta, (omega, v) = x[2], u
        sin, cos, side = jnp.sin(theta), jnp.cos(theta), slip * omega * v
        return jnp.stack([v * cos - side * sin, v * sin + side * cos, omega])

    planar = _planar("slipping-unicycle", f)
    return System(**{**vars(planar), "gamma": lambda x: jnp.zeros((0, 4))})


def bicycle(wheelbase: float = 0.5) -> System:
    """The kinematic bicycle: u = (delta, v), θ' = v tan(delta)/L (c = 1)."""

    def f(x: Float[Array, " 3"], u: Float[Array, " 2"]) -> Float[Array, " 3"]:
        theta, (delta, v) = x[2], u
        turn = v * jnp.tan(delta) / wheelbase
        return jnp.stack([v * jnp.cos(theta), v * jnp.sin(theta), turn])

    planar = _planar("bicycle", f)
    return System(
        **{
            **vars(planar),
            "control_names": ("delta", "v"),
            "controls": Box((-0.5, 0.0), (0.5, 1.5)),
        }
    )


def trailer(length: float = 1.0) -> System:
    """A unicycle that tows a trailer hitched at its axle: x = (px, py, theta, psi), c = 2."""

    def f(x: Float[Array, " 4"], u: Float[Array, " 2"]) -> Float[Array, " 4"]:
        _, _, theta, psi = x
        omega, v = u
        sway = v / length * jnp.sin(theta - psi)
        return jnp.stack([v * jnp.cos(theta), v * jnp.sin(theta), omega, sway])

    def gamma(x: Float[Array, " 4"]) -> Float[Array, "2 5"]:
        # The trailer's axle does not slide either: −sin ψ ṗx + cos ψ ṗy − L ψ' = 0.
        psi = x[3]
        zero = jnp.zeros_like(psi)
        row = jnp.stack([-jnp.sin(psi), jnp.cos(psi), zero, zero - length, zero])
        return jnp.concatenate([no_side_slip(x), row[None]])

    return System(
        name="trailer",
        state_names=("px", "py", "theta", "psi"),
        control_names=("omega", "v"),
        angles=("theta", "psi"),
        dt=0.1,
        f=f,
        gamma=gamma,
        controls=Box((-0.5, 0.0), (0.5, 1.5)),
    )


def rolling_disk(radius: float = 0.4) -> System:
    """A disk rolling upright without slipping: x = (px, py, theta, roll), two constraints."""

    def f(x: Float[Array, " 4"], u: Float[Array, " 2"]) -> Float[Array, " 4"]:
        theta, (omega, spin) = x[2], u
        speed = radius * spin
        return jnp.stack([speed * jnp.cos(theta), speed * jnp.sin(theta), omega, spin])

    def gamma(x: Float[Array, " 4"]) -> Float[Array, "2 5"]:
        theta = x[2]
        one, zero = jnp.ones_like(theta), jnp.zeros_like(theta)
        return jnp.stack(
            [
                jnp.stack([one, zero, zero, -radius * jnp.cos(theta), zero]),
                jnp.stack([zero, one, zero, -radius * jnp.sin(theta), zero]),
            ]
        )

    return System(
        name="rolling-disk",
        state_names=("px", "py", "theta", "roll"),
        control_names=("omega", "spin"),
        angles=("theta", "roll"),
        dt=0.1,
        f=f,
        gamma=gamma,
        controls=Box((-0.5, 0.0), (0.5, 3.0)),
    )


def _planar(name: str, f: VectorField) -> System:
    return System(
        name=name,
        state_names=("px", "py", "theta"),
        control_names=("omega", "v"),
        angles=("theta",),
        dt=0.1,
        f=f,
        gamma=no_side_slip,
        controls=Box((-0.2, 0.0), (0.2, 1.5)),
    )
