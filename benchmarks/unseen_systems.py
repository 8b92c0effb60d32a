"""Systems that nothing in offmap was built on, each with its true constraint and a protocol.

`LOOKED_AT` was written in one go; what went wrong on it was then mended (docs/accuracy.md). `BLIND`
was written after that, and run once; two things were mended then. `AGAIN` was written after those.
"""

from collections.abc import Callable, Sequence
from math import pi

import jax.numpy as jnp
from jax import Array
from jax.numpy import cos, sin, tan

from offmap.paper.cases import Case
from offmap.paper.protocol import Experiment
from offmap.systems import Box, System

G = 9.81
WIDE, OUT = pi / 3, pi / 2
_Row = Callable[[Array], Sequence]


def _rows(*rows: _Row) -> Callable[[Array], Array]:
    """Γ from the entries of its rows."""

    def gamma(x: Array) -> Array:
        return jnp.stack(
            [jnp.stack([jnp.asarray(entry, float) for entry in row(x)]) for row in rows]
        )

    return gamma


def _rate(n: int, of: int, by: int) -> _Row:
    """That the rate of a state is another one."""
    return lambda x: [float(i == of) for i in range(n)] + [-x[by]]


def _across(n: int, theta: int) -> _Row:
    """That the first two states do not move across the heading."""
    return lambda x: [-sin(x[theta]), cos(x[theta])] + [0.0] * (n - 1)


def _case(
    states: str,
    controls: str,
    angles: str,
    f: Callable,
    gamma: Callable | None,
    commands: tuple[tuple, tuple],
    inner: tuple[tuple, tuple],
    outer: tuple[tuple, tuple],
    inputs: str,
    dt: float = 0.1,
    drives: int = 20,
    steps: int = 25,
) -> Case:
    names = tuple(states.split())
    system = System(
        "unseen",
        names,
        tuple(controls.split()),
        tuple(angles.split()),
        dt,
        lambda x, u: jnp.stack(f(x, u)),
        gamma or (lambda x: jnp.zeros((0, len(names) + 1))),
        Box(*commands),
    )
    experiment = Experiment(
        system=system,
        offline_trajectories=drives,
        offline_steps=steps,
        online_actions=5,
        test_actions=20,
        hold=5,
        tests=5,
        id_box=Box(*inner),
        ood_offline_box=Box(*inner),
        ood_online_box=Box(*outer),
    )
    return Case(experiment, frozenset(inputs.split()))


_FLOOR = ((-10, -10, -WIDE), (10, 10, WIDE)), ((15, 15, WIDE), (20, 20, OUT))
"""Where robots of three states drive, and where they are tested."""


def _with(more: tuple[tuple, tuple], outside: tuple[tuple, tuple]) -> tuple:
    """The same with further states."""
    (low, high), (near, far) = _FLOOR
    return (low + more[0], high + more[1]), (near + outside[0], far + outside[1])


def _omni(x, u):
    return [u[0] * cos(x[2]) - u[1] * sin(x[2]), u[0] * sin(x[2]) + u[1] * cos(x[2]), u[2]]


def _two_links(x, u):
    """A two-link arm: masses, Coriolis terms and weight."""
    q1, q2, w1, w2 = x
    a, b, d = 0.3, 0.1, 0.12
    mass = jnp.array([[a + 2 * b * cos(q2), d + b * cos(q2)], [d + b * cos(q2), d]])
    turn = b * sin(q2) * jnp.array([-(2 * w1 * w2 + w2**2), w1**2])
    weight = jnp.array([2 * sin(q1) + 0.8 * sin(q1 + q2), 0.8 * sin(q1 + q2)])
    w1_dot, w2_dot = jnp.linalg.solve(mass, u - turn - weight)
    return [w1, w2, w1_dot, w2_dot]


def _unactuated(x):
    """What no motor pushes of a two-link arm without its first one."""
    q1, q2, w1, w2 = x
    flung = -0.1 * sin(q2) * (2 * w1 * w2 + w2**2)
    weight = 2 * sin(q1) + 0.8 * sin(q1 + q2)
    return [0, 0, 0.3 + 0.2 * cos(q2), 0.12 + 0.1 * cos(q2), flung + weight]


def _boat(x, u):
    _, _, th, s, w, r = x
    return [
        s * cos(th) - w * sin(th),
        s * sin(th) + w * cos(th),
        r,
        -0.5 * s + 0.8 * w * r + u[0],
        -0.9 * w - 0.6 * s * r,
        -0.7 * r + u[1],
    ]


def _rocket(x, u):
    _, _, th, vx, vz, w = x
    ax, az = -u[0] * sin(th) + u[1] * cos(th), u[0] * cos(th) + u[1] * sin(th) - G
    return [vx, vz, w, ax, az, -2.0 * u[1]]


def _drag(x, u):
    _, _, ph, vx, vz, w = x
    thrust, slow = (u[0] + u[1]) / 0.486, 0.15 * jnp.sqrt(vx**2 + vz**2)
    ax, az = -thrust * sin(ph) - slow * vx, thrust * cos(ph) - G - slow * vz
    return [vx, vz, w, ax, az, (u[0] - u[1]) / 0.0383]


def _drag_row(x):
    _, _, ph, vx, vz, _ = x
    slow = 0.15 * jnp.sqrt(vx**2 + vz**2) * (vx * cos(ph) + vz * sin(ph))
    return [0, 0, 0, cos(ph), sin(ph), 0, G * sin(ph) + slow]


def _sleigh(x, u):
    _, _, th, v, w = x
    return [v * cos(th), v * sin(th), w, 0.3 * w**2 + u[0], -0.5 * v * w + u[1]]


def _tyres(x, u):
    _, _, psi, vx, vy, r = x
    front, rear = -8 * (vy + r) / vx + 8 * u[0], -9 * (vy - r) / vx
    return [
        vx * cos(psi) - vy * sin(psi),
        vx * sin(psi) + vy * cos(psi),
        r,
        u[1] + vy * r,
        front + rear - vx * r,
        (front - rear) / 1.2,
    ]


def _moved_by_speed(n: int) -> tuple[_Row, _Row]:
    """That a robot with speed x₃ moves along its heading."""
    zeros = [0.0] * (n - 2)
    return (
        lambda x: [1, 0, *zeros, -x[3] * cos(x[2])],
        lambda x: [0, 1, *zeros, -x[3] * sin(x[2])],
    )


def _bodies(n: int) -> tuple[_Row, _Row]:
    """That velocities x₃ and x₄ are those along and across the heading."""
    zeros = [0.0] * (n - 2)
    return (
        lambda x: [cos(x[2]), sin(x[2]), *zeros, -x[3]],
        lambda x: [-sin(x[2]), cos(x[2]), *zeros, -x[4]],
    )


_HOVER = 0.486 * G / 2
_AFLOAT = _with(((0, -0.3, -0.4), (1.5, 0.3, 0.4)), ((1, -0.3, -0.4), (2, 0.3, 0.4)))
_ARM = (
    ((-WIDE, -WIDE, -1, -1), (WIDE, WIDE, 1, 1)),
    ((WIDE, WIDE, -1, -1), (OUT, OUT, 1, 1)),
)
_SMALL = ((-0.2, 0.0), (0.2, 1.5))

LOOKED_AT = {
    "omnidirectional": _case(
        "px py theta",
        "vx vy om",
        "theta",
        _omni,
        None,
        ((-1, -1, -0.3), (1, 1, 0.3)),
        *_FLOOR,
        "theta vx vy om",
    ),
    "two-link arm": _case(
        "q1 q2 w1 w2",
        "t1 t2",
        "q1 q2",
        _two_links,
        _rows(_rate(4, 0, 2), _rate(4, 1, 3)),
        ((-2, -1), (2, 1)),
        *_ARM,
        "q1 q2 w1 w2 t1 t2",
        dt=0.02,
        drives=40,
    ),
    "accelerated unicycle": _case(
        "px py theta v w",
        "a alpha",
        "theta",
        lambda x, u: [x[3] * cos(x[2]), x[3] * sin(x[2]), x[4], u[0], u[1]],
        _rows(*_moved_by_speed(5), _rate(5, 2, 4)),
        ((-0.5, -0.3), (0.5, 0.3)),
        *_with(((0, -0.2), (1.5, 0.2)), ((1, -0.2), (2, 0.2))),
        "theta v w a alpha",
    ),
    "aeroplane": _case(
        "px py pz psi",
        "v climb turn",
        "psi",
        lambda x, u: [u[0] * cos(x[3]), u[0] * sin(x[3]), u[1], u[2]],
        _rows(_across(4, 3)),
        ((0.5, -0.5, -0.3), (2, 0.5, 0.3)),
        ((-10, -10, 0, -WIDE), (10, 10, 5, WIDE)),
        ((15, 15, 8, WIDE), (20, 20, 10, OUT)),
        "psi v climb turn",
    ),
    "boat": _case(
        "px py theta surge sway yaw",
        "thrust torque",
        "theta",
        _boat,
        _rows(
            *_bodies(6),
            _rate(6, 2, 5),
            lambda x: [0, 0, 0, 0, 1, 0, 0.9 * x[4] + 0.6 * x[3] * x[5]],
        ),
        ((0, -0.3), (1, 0.3)),
        *_AFLOAT,
        "theta surge sway yaw thrust torque",
    ),
    "rocket": _case(
        "px pz theta vx vz w",
        "thrust side",
        "theta",
        _rocket,
        _rows(
            *(_rate(6, i, 3 + i) for i in range(3)),
            lambda x: [0, 0, 0, cos(x[2]), sin(x[2]), 0.5, G * sin(x[2])],
        ),
        ((7, -1.5), (13, 1.5)),
        ((-1, -1, -0.5, -1, -1, -0.5), (1, 1, 0.5, 1, 1, 0.5)),
        ((2, 2, 0.5, 1, -2, -1), (3, 3, 0.9, 2, 2, 1)),
        "theta vx vz w thrust side",
        dt=0.02,
        drives=40,
    ),
    "acrobot": _case(
        "q1 q2 w1 w2",
        "t2",
        "q1 q2",
        lambda x, u: _two_links(x, jnp.array([0.0, 1.0]) * u[0]),
        _rows(_rate(4, 0, 2), _rate(4, 1, 3), _unactuated),
        ((-1,), (1,)),
        *_ARM,
        "q1 q2 w1 w2 t2",
        dt=0.02,
        drives=40,
    ),
    "springs": _case(
        "x1 x2 v1 v2",
        "F",
        "",
        lambda x, u: [
            x[2],
            x[3],
            -3 * x[0] + 2 * (x[1] - x[0]) - 0.4 * x[2] + u[0],
            -2 * (x[1] - x[0]) - 0.3 * x[3],
        ],
        _rows(
            _rate(4, 0, 2),
            _rate(4, 1, 3),
            lambda x: [0, 0, 0, 1, 2 * (x[1] - x[0]) + 0.3 * x[3]],
        ),
        ((-3,), (3,)),
        ((-1,) * 4, (1,) * 4),
        ((2, 2, 1, 1), (3, 3, 2, 2)),
        "x1 x2 v1 v2 F",
        dt=0.05,
    ),
    "quadrotor with drag": _case(
        "px pz phi vx vz w",
        "u1 u2",
        "phi",
        _drag,
        _rows(*(_rate(6, i, 3 + i) for i in range(3)), _drag_row),
        ((_HOVER, _HOVER), (2.5, 2.5)),
        ((-0.5, -0.5, -pi / 4, 0, -2, -WIDE), (0.5, 0.5, pi / 4, 2, 0, WIDE)),
        ((-1, -1, -WIDE, 0, -5, -WIDE), (1, 1, WIDE, 5, 0, WIDE)),
        "phi vx vz w u1 u2",
        dt=0.01,
        drives=200,
        steps=5,
    ),
    "sleigh": _case(
        "px py theta v w",
        "F tau",
        "theta",
        _sleigh,
        _rows(*_moved_by_speed(5), _rate(5, 2, 4)),
        ((-0.5, -0.3), (0.5, 0.3)),
        *_with(((0, -0.3), (1.5, 0.3)), ((1, -0.3), (2, 0.3))),
        "theta v w F tau",
    ),
    "crab steering": _case(
        "px py theta",
        "beta delta v",
        "theta",
        lambda x, u: [
            u[2] * cos(x[2] + u[0]),
            u[2] * sin(x[2] + u[0]),
            u[2] * tan(u[1]) / 0.5,
        ],
        None,
        ((-0.4, -0.3, 0), (0.4, 0.3, 1.5)),
        *_FLOOR,
        "theta beta delta v",
    ),
    "bicycle by its middle": _case(
        "px py theta",
        "delta v",
        "theta",
        lambda x, u: [
            u[1] * cos(x[2] + jnp.arctan(0.5 * tan(u[0]))),
            u[1] * sin(x[2] + jnp.arctan(0.5 * tan(u[0]))),
            u[1] * sin(jnp.arctan(0.5 * tan(u[0]))) / 0.25,
        ],
        _rows(lambda x: [-sin(x[2]), cos(x[2]), -0.25, 0]),
        ((-0.5, 0), (0.5, 1.5)),
        *_FLOOR,
        "theta delta v",
    ),
    "unicycle in wind": _case(
        "px py theta",
        "omega v",
        "theta",
        lambda x, u: [u[1] * cos(x[2]) + 0.3, u[1] * sin(x[2]) - 0.2, u[0]],
        _rows(lambda x: [-sin(x[2]), cos(x[2]), 0, 0.3 * sin(x[2]) + 0.2 * cos(x[2])]),
        _SMALL,
        *_FLOOR,
        "theta omega v",
    ),
    "wheels counted": _case(
        "px py theta left right",
        "ul ur",
        "theta",
        lambda x, u: [
            0.1 * (u[0] + u[1]) * cos(x[2]),
            0.1 * (u[0] + u[1]) * sin(x[2]),
            0.2 * (u[1] - u[0]),
            u[0],
            u[1],
        ],
        _rows(
            lambda x: [1, 0, 0, -0.1 * cos(x[2]), -0.1 * cos(x[2]), 0],
            lambda x: [0, 1, 0, -0.1 * sin(x[2]), -0.1 * sin(x[2]), 0],
            lambda x: [0, 0, 1, 0.2, -0.2, 0],
        ),
        ((0, 0), (6, 6)),
        *_with(((-3, -3), (3, 3)), ((-3, -3), (3, 3))),
        "theta ul ur",
    ),
    "skid steering": _case(
        "px py theta",
        "omega v",
        "theta",
        lambda x, u: [
            u[1] * cos(x[2]) + 0.15 * u[0] * sin(x[2]),
            u[1] * sin(x[2]) - 0.15 * u[0] * cos(x[2]),
            0.7 * u[0],
        ],
        _rows(lambda x: [-sin(x[2]), cos(x[2]), 0.15 / 0.7, 0]),
        ((-1, 0), (1, 1.5)),
        *_FLOOR,
        "theta omega v",
    ),
    "uneven ground": _case(
        "px py theta",
        "omega v",
        "theta",
        lambda x, u: [
            u[1] * (1 + 0.3 * sin(0.3 * x[0])) * cos(x[2]),
            u[1] * (1 + 0.3 * sin(0.3 * x[0])) * sin(x[2]),
            u[0],
        ],
        _rows(_across(3, 2)),
        _SMALL,
        *_FLOOR,
        "px theta omega v",
    ),
    "pendulum": _case(
        "theta w",
        "tau",
        "theta",
        lambda x, u: [x[1], -G * sin(x[0]) - 0.2 * x[1] + 4 * u[0]],
        _rows(_rate(2, 0, 1)),
        ((-1,), (1,)),
        ((-1, -2), (1, 2)),
        ((1.2, -3), (2, 3)),
        "theta w tau",
        dt=0.02,
    ),
    "car on tyres": _case(
        "px py psi vx vy r",
        "delta a",
        "psi",
        _tyres,
        _rows(
            *_bodies(6),
            _rate(6, 2, 5),
            lambda x: [0, 0, 0, 0, 1, -1.2, x[3] * x[5] + 18 * (x[4] - x[5]) / x[3]],
        ),
        ((-0.2, -1), (0.2, 1)),
        *_with(((4, -0.3, -0.3), (8, 0.3, 0.3)), ((7, -0.3, -0.3), (9, 0.3, 0.3))),
        "psi vx vy r delta a",
        dt=0.05,
        drives=40,
    ),
    "commanded drone": _case(
        "px py pz yaw",
        "vx vy vz r",
        "yaw",
        lambda x, u: [
            u[0] * cos(x[3]) - u[1] * sin(x[3]),
            u[0] * sin(x[3]) + u[1] * cos(x[3]),
            u[2],
            u[3],
        ],
        None,
        ((-1, -1, -1, -0.3), (1, 1, 1, 0.3)),
        ((-5, -5, 0, -WIDE), (5, 5, 5, WIDE)),
        ((8, 8, 6, WIDE), (12, 12, 8, OUT)),
        "yaw vx vy vz r",
    ),
    "ball and beam": _case(
        "r v theta w",
        "alpha",
        "theta",
        lambda x, u: [x[1], 5 / 7 * (x[0] * x[3] ** 2 - G * sin(x[2])), x[3], u[0]],
        _rows(
            _rate(4, 0, 1),
            lambda x: [0, 1, 0, 0, -5 / 7 * (x[0] * x[3] ** 2 - G * sin(x[2]))],
            _rate(4, 2, 3),
        ),
        ((-4,), (4,)),
        ((-0.5, -0.5, -0.5, -1), (0.5, 0.5, 0.5, 1)),
        ((0.6, -0.5, 0.5, -1), (1, 0.5, 0.8, 1)),
        "r v theta w alpha",
        dt=0.02,
        drives=40,
    ),
}


def _hitched(x, u):
    """A trailer whose hitch is .3 behind the axle of the tractor, its own axle .8 behind that."""
    _, _, th, psi = x
    turn = (u[1] * sin(th - psi) - 0.3 * u[0] * cos(th - psi)) / 0.8
    return [u[1] * cos(th), u[1] * sin(th), u[0], turn]


def _hovercraft(x, u):
    _, _, th, vx, vy, w = x
    push = [u[0] * cos(th) - 0.4 * vx, u[0] * sin(th) - 0.4 * vy]
    return [vx, vy, w, *push, u[1] - 0.3 * w]


def _crane(x, u):
    """A trolley whose speed is commanded by its force, with a load on a rope of .8."""
    _, th, v, w = x
    return [v, w, u[0], -(u[0] * cos(th) + G * sin(th)) / 0.8 - 0.1 * w]


def _reaction_wheel(x, u):
    th, w, wheel = x
    return [w, -20 * sin(th) - 5 * u[0], 40 * u[0] - 0.1 * wheel]


def _led_by_the_front(x, u):
    """A car by the middle of its front axle, .5 ahead of the rear one; its steering is a state."""
    _, _, th, d = x
    return [u[0] * cos(th + d), u[0] * sin(th + d), u[0] * sin(d) / 0.5, u[1]]


def _on_a_plate(x, u):
    return [x[2], x[3], 7.0 * sin(x[4]), 7.0 * sin(x[5]), u[0], u[1]]


def _three_wheels(x, u):
    """Three omnidirectional wheels around a disk, their speeds commanded."""
    forward, left = 0.58 * (u[1] - u[2]), 0.67 * u[0] - 0.33 * (u[1] + u[2])
    turn = 0.3 * (u[0] + u[1] + u[2])
    return _omni(x, jnp.stack([forward, left, turn]))


def _motor_arm(x, u):
    """A link driven by a motor whose current follows its voltage."""
    return [x[1], -G * sin(x[0]) - 0.3 * x[1] + 6 * x[2], 8 * (u[0] - x[2]) - 0.5 * x[1]]


def _roller(x, u):
    """A ball of radius .2 that rolls on a plane without spinning, its two spins commanded."""
    return [0.2 * u[1], -0.2 * u[0], u[0], u[1]]


def _kite(x, u):
    """A boat under sail: speed falls with the heading off the wind, and there is a current."""
    speed = u[1] * (0.6 + 0.4 * cos(x[2]))
    return [speed * cos(x[2]) + 0.2, speed * sin(x[2]), u[0]]


BLIND = {
    "hitch behind the axle": _case(
        "px py theta psi",
        "omega v",
        "theta psi",
        _hitched,
        _rows(
            _across(4, 2),
            lambda x: [-sin(x[3]), cos(x[3]), -0.3 * cos(x[2] - x[3]), -0.8, 0],
        ),
        ((-0.5, 0), (0.5, 1.5)),
        *_with(((-WIDE,), (WIDE,)), ((WIDE,), (OUT,))),
        "theta psi omega v",
    ),
    "hovercraft": _case(
        "px py theta vx vy w",
        "push torque",
        "theta",
        _hovercraft,
        _rows(
            *(_rate(6, i, 3 + i) for i in range(3)),
            lambda x: [
                *(0, 0, 0, -sin(x[2]), cos(x[2]), 0),
                0.4 * (x[4] * cos(x[2]) - x[3] * sin(x[2])),
            ],
        ),
        ((0, -0.3), (1, 0.3)),
        *_with(((-1, -1, -0.3), (1, 1, 0.3)), ((1, 1, -0.3), (2, 2, 0.3))),
        "theta vx vy w push torque",
    ),
    "crane": _case(
        "p theta v w",
        "a",
        "theta",
        _crane,
        _rows(
            _rate(4, 0, 2),
            _rate(4, 1, 3),
            lambda x: [0, 0, cos(x[1]), 0.8, G * sin(x[1]) + 0.08 * x[3]],
        ),
        ((-3,), (3,)),
        ((-1, -0.8, -1, -1), (1, 0.8, 1, 1)),
        ((2, 0.8, -2, -2), (3, 1.3, 2, 2)),
        "theta v w a",
        dt=0.02,
        drives=40,
    ),
    "reaction wheel": _case(
        "theta w wheel",
        "tau",
        "theta",
        _reaction_wheel,
        _rows(
            _rate(3, 0, 1),
            lambda x: [0, 8, 1, 160 * sin(x[0]) + 0.1 * x[2]],
        ),
        ((-1,), (1,)),
        ((-0.8, -2, -20), (0.8, 2, 20)),
        ((0.9, -3, -40), (1.5, 3, 40)),
        "theta w wheel tau",
        dt=0.02,
    ),
    "led by the front": _case(
        "px py theta delta",
        "v rate",
        "theta delta",
        _led_by_the_front,
        _rows(
            lambda x: [-sin(x[2] + x[3]), cos(x[2] + x[3]), 0, 0, 0],
            lambda x: [-sin(x[2]), cos(x[2]), -0.5, 0, 0],
        ),
        ((0, -0.3), (1.5, 0.3)),
        *_with(((-0.4,), (0.4,)), ((-0.5,), (0.5,))),
        "theta delta v rate",
    ),
    "ball on a plate": _case(
        "x y vx vy a b",
        "ra rb",
        "a b",
        _on_a_plate,
        _rows(
            _rate(6, 0, 2),
            _rate(6, 1, 3),
            lambda x: [0, 0, 1, 0, 0, 0, -7 * sin(x[4])],
            lambda x: [0, 0, 0, 1, 0, 0, -7 * sin(x[5])],
        ),
        ((-1, -1), (1, 1)),
        ((-1, -1, -1, -1, -0.5, -0.5), (1, 1, 1, 1, 0.5, 0.5)),
        ((2, 2, 1, 1, 0.5, 0.5), (3, 3, 2, 2, 1, 1)),
        "vx vy a b ra rb",
        dt=0.02,
        drives=40,
    ),
    "three wheels": _case(
        "px py theta",
        "u1 u2 u3",
        "theta",
        _three_wheels,
        None,
        ((-1,) * 3, (1,) * 3),
        *_FLOOR,
        "theta u1 u2 u3",
    ),
    "motor and link": _case(
        "theta w i",
        "volt",
        "theta",
        _motor_arm,
        _rows(
            _rate(3, 0, 1),
            lambda x: [0, 1, 0, G * sin(x[0]) + 0.3 * x[1] - 6 * x[2]],
        ),
        ((-1,), (1,)),
        ((-1, -2, -1), (1, 2, 1)),
        ((1.2, -3, -1), (2, 3, 1)),
        "theta w i volt",
        dt=0.02,
    ),
    "rolling ball": _case(
        "px py a b",
        "wa wb",
        "",
        _roller,
        _rows(lambda x: [1, 0, 0, -0.2, 0], lambda x: [0, 1, 0.2, 0, 0]),
        ((-3, -3), (3, 3)),
        ((-5, -5, -3, -3), (5, 5, 3, 3)),
        ((8, 8, 5, 5), (12, 12, 8, 8)),
        "wa wb",
    ),
    "under sail": _case(
        "px py theta",
        "omega v",
        "theta",
        _kite,
        _rows(lambda x: [-sin(x[2]), cos(x[2]), 0, 0.2 * sin(x[2])]),
        _SMALL,
        *_FLOOR,
        "theta omega v",
    ),
}


def _sliding_link(x, u):
    """A mass on a turning boom, driven along it and around."""
    r, _, v, w = x
    return [v, w, r * w**2 + u[0], (u[1] - 2 * r * v * w) / r**2]


def _oscillator(x, u):
    """A cart on a spring that is moved by turning an eccentric mass (TORA)."""
    x1, th, v, w = x
    mass = jnp.array([[1.0, 0.4 * cos(th)], [0.4 * cos(th), 1.0]])
    force = jnp.stack([0.4 * w**2 * sin(th) - 2 * x1, u[0]])
    v_dot, w_dot = jnp.linalg.solve(mass, force)
    return [v, w, v_dot, w_dot]


def _segway(x, u):
    """A body on two wheels: place, lean and their rates; the motor turns one against the other."""
    _, th, v, w = x
    mass = jnp.array([[2.0, 0.5 * cos(th)], [0.5 * cos(th), 0.6]])
    force = jnp.stack([0.5 * w**2 * sin(th) + u[0] / 0.1, 0.5 * G * sin(th) - u[0]])
    v_dot, w_dot = jnp.linalg.solve(mass, force)
    return [v, w, v_dot, w_dot]


def _car(x, u):
    """Speed and steering angle are states."""
    _, _, th, v, d = x
    return [v * cos(th), v * sin(th), v * tan(d) / 0.5, u[0], u[1]]


def _forklift(x, u):
    _, _, th, d = x
    return [u[0] * cos(d) * cos(th), u[0] * cos(d) * sin(th), -u[0] * sin(d) / 1.2, u[1]]


def _turning_body(x, u):
    """Roll, pitch and yaw of a body whose rates are driven by torques."""
    phi, th, _, p, q, r = x
    turn = q * sin(phi) + r * cos(phi)
    return [
        p + turn * tan(th),
        q * cos(phi) - r * sin(phi),
        turn / cos(th),
        -0.4 * q * r + u[0],
        0.5 * p * r + u[1],
        -0.1 * p * q + u[2],
    ]


def _torpedo(x, u):
    _, _, pitch, s, _ = x
    return [s * cos(pitch), s * sin(pitch), x[4], u[0] - 0.3 * s, u[1] - 0.8 * x[4]]


def _mecanum(x, u):
    return _omni(x, jnp.stack([u[0], 0.7 * u[1], 0.9 * u[2]]))


def _drag_line(x, u):
    """A planar quadrotor whose drag is linear in its speed."""
    _, _, ph, vx, vz, w = x
    thrust = (u[0] + u[1]) / 0.486
    turn = (u[0] - u[1]) / 0.0383
    return [vx, vz, w, -thrust * sin(ph) - 0.3 * vx, thrust * cos(ph) - G - 0.3 * vz, turn]


def _hung_on_a_belt(x, u):
    """A cart whose speed is commanded, with a pendulum on it that has friction."""
    _, th, w = x
    return [u[0], w, -G * sin(th) - 0.2 * w]


AGAIN = {
    "sliding link": _case(
        "r th v w",
        "F tau",
        "th",
        _sliding_link,
        _rows(_rate(4, 0, 2), _rate(4, 1, 3)),
        ((-1, -1), (1, 1)),
        ((1, -1, -0.5, -0.5), (2, 1, 0.5, 0.5)),
        ((2, 1, -0.5, -0.5), (2.5, 2, 0.5, 0.5)),
        "r v w F tau",
        dt=0.02,
        drives=40,
    ),
    "eccentric mass": _case(
        "x1 th v w",
        "tau",
        "th",
        _oscillator,
        _rows(
            _rate(4, 0, 2),
            _rate(4, 1, 3),
            lambda x: [0, 0, 1, 0.4 * cos(x[1]), 2 * x[0] - 0.4 * x[3] ** 2 * sin(x[1])],
        ),
        ((-2,), (2,)),
        ((-1, -1, -1, -2), (1, 1, 1, 2)),
        ((1, 1, -1, -2), (2, 2, 1, 2)),
        "x1 th w tau",
        dt=0.02,
        drives=40,
    ),
    "segway": _case(
        "s th v w",
        "tau",
        "th",
        _segway,
        _rows(
            _rate(4, 0, 2),
            _rate(4, 1, 3),
            lambda x: [
                *(0, 0, 2 + 5 * cos(x[1]), 0.5 * cos(x[1]) + 6),
                -0.5 * x[3] ** 2 * sin(x[1]) - 5 * G * sin(x[1]),
            ],
        ),
        ((-1,), (1,)),
        ((-1, -0.6, -1, -1), (1, 0.6, 1, 1)),
        ((2, 0.6, -1, -1), (3, 0.9, 1, 1)),
        "th w tau",
        dt=0.02,
        drives=40,
    ),
    "car with states": _case(
        "px py theta v delta",
        "a rate",
        "theta delta",
        _car,
        _rows(
            *_moved_by_speed(5),
            lambda x: [0, 0, cos(x[4]), 0, 0, -2 * x[3] * sin(x[4])],
        ),
        ((-0.5, -0.3), (0.5, 0.3)),
        *_with(((0, -0.4), (1.5, 0.4)), ((1, -0.5), (2, 0.5))),
        "theta v delta a rate",
    ),
    "forklift": _case(
        "px py theta delta",
        "v rate",
        "theta delta",
        _forklift,
        _rows(
            _across(4, 2),
            lambda x: [sin(x[3]) * cos(x[2]), sin(x[3]) * sin(x[2]), 1.2 * cos(x[3]), 0, 0],
        ),
        ((0, -0.3), (1.5, 0.3)),
        *_with(((-0.5,), (0.5,)), ((-0.7,), (0.7,))),
        "theta delta v rate",
    ),
    "turning body": _case(
        "phi theta psi p q r",
        "l m n",
        "phi theta psi",
        _turning_body,
        _rows(
            lambda x: [1, 0, -sin(x[1]), 0, 0, 0, -x[3]],
            lambda x: [0, 1, 0, 0, 0, 0, x[5] * sin(x[0]) - x[4] * cos(x[0])],
            lambda x: [0, 0, cos(x[1]), 0, 0, 0, -x[4] * sin(x[0]) - x[5] * cos(x[0])],
        ),
        ((-1,) * 3, (1,) * 3),
        ((-0.6, -0.6, -1, -1, -1, -1), (0.6, 0.6, 1, 1, 1, 1)),
        ((0.6, 0.5, 1, -1, -1, -1), (1, 0.8, 2, 1, 1, 1)),
        "phi theta p q r l m n",
        dt=0.02,
        drives=40,
    ),
    "torpedo": _case(
        "px pz pitch s q",
        "thrust fin",
        "pitch",
        _torpedo,
        _rows(*_moved_by_speed(5), _rate(5, 2, 4)),
        ((0, -0.3), (1, 0.3)),
        *_with(((0.5, -0.2), (2, 0.2)), ((1, -0.2), (3, 0.2))),
        "pitch s q thrust fin",
    ),
    "mecanum": _case(
        "px py theta",
        "vx vy om",
        "theta",
        _mecanum,
        None,
        ((-1, -1, -0.3), (1, 1, 0.3)),
        *_FLOOR,
        "theta vx vy om",
    ),
    "quadrotor in air": _case(
        "px pz phi vx vz w",
        "u1 u2",
        "phi",
        _drag_line,
        _rows(
            *(_rate(6, i, 3 + i) for i in range(3)),
            lambda x: [
                *(0, 0, 0, cos(x[2]), sin(x[2]), 0),
                G * sin(x[2]) + 0.3 * (x[3] * cos(x[2]) + x[4] * sin(x[2])),
            ],
        ),
        ((_HOVER, _HOVER), (2.5, 2.5)),
        ((-0.5, -0.5, -pi / 4, 0, -2, -WIDE), (0.5, 0.5, pi / 4, 2, 0, WIDE)),
        ((-1, -1, -WIDE, 0, -5, -WIDE), (1, 1, WIDE, 5, 0, WIDE)),
        "phi vx vz w u1 u2",
        dt=0.01,
        drives=200,
        steps=5,
    ),
    "pendulum on a belt": _case(
        "s th w",
        "v",
        "th",
        _hung_on_a_belt,
        _rows(_rate(3, 1, 2), lambda x: [0, 0, 1, G * sin(x[1]) + 0.2 * x[2]]),
        ((-1,), (1,)),
        ((-1, -1, -2), (1, 1, 2)),
        ((1, 1, -3), (2, 2, 3)),
        "th w v",
        dt=0.02,
    ),
}
