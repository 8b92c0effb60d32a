"""How long the projection alone takes in a batch, and how exact it is."""

from collections.abc import Callable
from functools import partial

import jax
import numpy as np
from jaxtyping import Float

from offmap.bench.bench import Bench
from offmap.bench.metrics import Limit, Metric, Outcome
from offmap.bench.peers import missing_modules
from offmap.bench.timing import clocked, interleaved, timed
from offmap.projection import project

_C, _N = 4, 6
_EXACT = 1e-12
OSQP_NEEDS = ("osqp",)

Solver = Callable[[Float[np.ndarray, "B n"], Float[np.ndarray, "B c q"]], Float[np.ndarray, "B n"]]


def projection(bench: Bench) -> list[Outcome]:
    """Four constraints on six velocities, NumPy in and out: µs a solve, and the largest error.

    Errors are against the solution of the KKT system of each problem.
    """
    count = 5_000 if bench.quick else 20_000
    xdot, gamma = _problems(count)
    compiled = jax.jit(jax.vmap(project))
    solvers: dict[str, tuple[Solver, int]] = {
        "ours": (lambda v, rows: np.asarray(compiled(v, rows)), count),
        "NumPy": (closed_form, count),
    }
    if missing_modules(OSQP_NEEDS) is None:
        solvers["OSQP"] = (osqp_solver(xdot[0], gamma[0]), count // 50)
    bench.progress(f"projection: {count} solves")
    first, _ = timed(lambda: compiled(xdot, gamma).block_until_ready())
    exact = kkt_solution(xdot, gamma)
    errors = {
        name: float(np.max(np.abs(solve(xdot[:most], gamma[:most]) - exact[:most])))
        for name, (solve, most) in solvers.items()
    }
    jobs = {
        name: clocked(partial(solve, xdot[:most], gamma[:most]))
        for name, (solve, most) in solvers.items()
    }
    seconds = interleaved(jobs, 5 * bench.rounds, budget=10.0)
    micro = {name: 1e6 * seconds[name] / most for name, (_, most) in solvers.items()}
    ours, our_error = micro.pop("ours"), errors.pop("ours")
    return [
        Outcome(Metric(f"projection/{_C}x{_N}/time", "µs", "lower", 0.5), ours, micro, first=first),
        Outcome(
            Metric(f"projection/{_C}x{_N}/error", "", "lower", 9.0),
            our_error,
            errors,
            Limit(_EXACT, "what counts as exact"),
        ),
    ]


def kkt_solution(
    xdot: Float[np.ndarray, "B n"], gamma: Float[np.ndarray, "B c q"]
) -> Float[np.ndarray, "B n"]:
    """[I Gᵀ; G 0] [ẋ; λ] = [ẋ_pred; −g], solved as it stands."""
    G, g = gamma[..., :-1], gamma[..., -1]
    c, n = G.shape[1:]
    matrix = np.zeros((len(G), n + c, n + c))
    matrix[:, :n, :n] = np.eye(n)
    matrix[:, :n, n:] = np.swapaxes(G, 1, 2)
    matrix[:, n:, :n] = G
    right = np.concatenate([xdot, -g], axis=1)
    return np.linalg.solve(matrix, right[..., None])[:, :n, 0]


def closed_form(
    xdot: Float[np.ndarray, "B n"], gamma: Float[np.ndarray, "B c q"]
) -> Float[np.ndarray, "B n"]:
    """ẋ_pred − Gᵀ (G Gᵀ)⁻¹ (G ẋ_pred + g) with NumPy's batched solve; needs independent rows."""
    G = gamma[..., :-1]
    violation = G @ xdot[..., None] + gamma[..., -1:]
    multipliers = np.linalg.solve(G @ np.swapaxes(G, 1, 2), violation)
    return xdot - (np.swapaxes(G, 1, 2) @ multipliers)[..., 0]


def osqp_solver(xdot: Float[np.ndarray, " n"], gamma: Float[np.ndarray, "c q"]) -> Solver:
    """OSQP set up once, then updated and started from the last solution for each problem."""
    import osqp
    from scipy import sparse

    c, n = gamma.shape[0], len(xdot)
    solver = osqp.OSQP()
    dense = sparse.csc_matrix(np.ones((c, n)))
    solver.setup(sparse.eye(n, format="csc"), -xdot, dense, np.zeros(c), np.zeros(c), verbose=False)

    def solve(v: np.ndarray, rows: np.ndarray) -> np.ndarray:
        answers = np.empty_like(v)
        for k in range(len(v)):
            bias = -rows[k, :, -1]
            solver.update(q=-v[k], Ax=rows[k, :, :-1].ravel(order="F"), l=bias, u=bias)
            answers[k] = solver.solve(raise_error=False).x
        return answers

    return solve


def _problems(count: int) -> tuple[Float[np.ndarray, "B n"], Float[np.ndarray, "B c q"]]:
    """Random problems whose rows are well conditioned: singular values between 1 and 2."""
    rng = np.random.default_rng(0)
    left = np.linalg.qr(rng.normal(size=(count, _C, _C)))[0]
    right = np.linalg.qr(rng.normal(size=(count, _N, _C)))[0]
    G = left * rng.uniform(1, 2, size=(count, 1, _C)) @ np.swapaxes(right, 1, 2)
    gamma = np.concatenate([G, rng.normal(size=(count, _C, 1))], axis=2)
    return rng.normal(size=(count, _N)), gamma
