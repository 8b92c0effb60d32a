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


def steered_car(wheelbase: float = 0.5) -> System:
    """A car whose steering angle is a state: x = (px, py, theta, delta), u = (v, rate), c = 2.

    Neither axle slides: the front wheels, ahead by the wheelbase, point along theta + delta.
    """

    def f(x: Float[Array, " 4"], u: Float[Array, " 2"]) -> Float[Array, " 4"]:
        _, _, theta, delta = x
        v, rate = u
        turn = v * jnp.tan(delta) / wheelbase
        return jnp.stack([v * jnp.cos(theta), v * jnp.sin(theta), turn, rate])

    def gamma(x: Float[Array, " 4"]) -> Float[Array, "2 5"]:
        _, _, theta, delta = x
        front, zero = theta + delta, jnp.zeros_like(theta)
        row = jnp.stack([-jnp.sin(front), jnp.cos(front), wheelbase * jnp.cos(delta), zero, zero])
        return jnp.concatenate([no_side_slip(x), row[None]])

    return System(
        name="steered-car",
        state_names=("px", "py", "theta", "delta"),
        control_names=("v", "rate"),
        angles=("theta", "delta"),
        dt=0.1,
        f=f,
        gamma=gamma,
        controls=Box((0.0, -0.3), (1.5, 0.3)),
    )


def trailer(length: float = 1.0) -> System:
    """A unicycle that tows a trailer hitched at its axle: x = (px, py, theta, psi), c = 2."""
    return _towing("trailer", ("psi",), (length,))


def two_trailers(lengths: tuple[float, float] = (1.0, 0.8)) -> System:
    """A unicycle that tows two trailers, each hitched at the axle before it: n = 5, c = 3."""
    return _towing("two-trailers", ("psi1", "psi2"), lengths)


def _towing(name: str, angles: tuple[str, ...], lengths: tuple[float, ...]) -> System:
    """A unicycle with a chain of trailers; each axle moves along its own heading."""

    def f(x: Float[Array, " n"], u: Float[Array, " 2"]) -> Float[Array, " n"]:
        omega, v = u
        rates = [v * jnp.cos(x[2]), v * jnp.sin(x[2]), omega]
        for i, length in enumerate(lengths):
            behind = x[2 + i] - x[3 + i]
            rates.append(v / length * jnp.sin(behind))
            v = v * jnp.cos(behind)
        return jnp.stack(rates)

    def gamma(x: Float[Array, " n"]) -> Float[Array, "c q"]:
        # Seen from its own heading ψᵢ, an axle is moved sideways by the tractor and by the turns of
        # all trailers up to its own: −sin ψᵢ ṗx + cos ψᵢ ṗy − Σ Lⱼ cos(ψᵢ − ψⱼ) ψⱼ' = 0.
        rows = [no_side_slip(x)[0]]
        for i in range(len(lengths)):
            psi = x[3 + i]
            row = jnp.zeros(x.shape[0] + 1).at[0].set(-jnp.sin(psi)).at[1].set(jnp.cos(psi))
            for j in range(i + 1):
                row = row.at[3 + j].set(-lengths[j] * jnp.cos(psi - x[3 + j]))
            rows.append(row)
        return jnp.stack(rows)

    return System(
        name=name,
        state_names=("px", "py", "theta", *angles),
        control_names=("omega", "v"),
        angles=("theta", *angles),
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
