"""Make a model obey a constraint in the way that held-out data favour."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from offmap.calls import at_each
from offmap.config import stage_keys
from offmap.constraint import ConstraintFit, DictionaryConstraint
from offmap.data import Dataset, Samples
from offmap.dynamics import Dynamics, complete_dynamics, targets
from offmap.gauge import commanded_gauge
from offmap.gp.verdict import OF_DRIVES, UNSURE, level_with_best, root_mean
from offmap.heldout import edge_errors, rollout_errors
from offmap.model import Model
from offmap.predictor import Predictor
from offmap.projection import unit_residual
from offmap.stages import by_trajectory, find_inputs, fit_stage
from offmap.tangent import tangent_frame
from offmap.threads import one_blas_thread
from offmap.types import Gamma

_SOFT_POINTS = 3000  # beyond, a variance for every prediction costs too much
_FAR = 1.25  # times the error of the best: any projection takes some noise away
_FIRM = ("projected", "tangent")  # structures that obey a constraint to the letter
_SOME = 2  # equations, of which some may be of use where all are not
_DRIVES = 6  # of which one half can tell about the other
LEVEL = 1.05  # ratio of errors within which candidates count as equal
FLOOR = 1e-4  # held-out errors below this share of the spread of x' count as equal


@one_blas_thread
def constrain(model: Model, gamma: Gamma | None) -> Model:
    """The model made to obey Γ in the way its settings say; None takes any constraint away.

    By projection alone (the paper), or by whatever predicts the held-out edge of the data best:
    no constraint, a soft or a firm projection onto it, or dynamics in its tangent frame. Unless
    errors of one step are negligible, rollouts along held-out trajectories have a say too.

    Drives of one place predict each other by a model of the world as well as by one that holds
    elsewhere. Where whole drives are held out, a frame whose kernel was taken because it is simple
    is therefore tried again with the best one before it is given up.
    """
    if gamma is None or not model.config.tangent:
        return model.with_constraint(gamma, model.constraint_fit)
    tangent, kernel = _fit_tangent(model, gamma)
    constrained = _as_held_out(model, gamma, tangent, kernel)
    chosen = bool(kernel) and len(model.config.kernels) > 1
    if constrained.choices.used == "tangent" or not (chosen and by_trajectory(model.config)):
        return constrained
    best, other = _fit_tangent(model, gamma, simplest=False)
    if other == kernel and best.reduction.names == tangent.reduction.names:
        return constrained
    again = _as_held_out(model, gamma, best, other)
    return again if again.choices.used == "tangent" else constrained


def _as_held_out(model: Model, gamma: Gamma, tangent: Dynamics, kernel: str) -> Model:
    """The model that obeys Γ as held-out data favour, given its dynamics in the frame of Γ."""
    samples = model.dataset.samples()
    primary = model.dataset.sources.index(model.primary)
    candidates = {
        "none": Predictor(model.world, None),
        "soft": Predictor(model.world, gamma, _softness(gamma, samples, primary)),
        "projected": Predictor(model.world, gamma),
        "tangent": Predictor(tangent, gamma),
    }
    if len(samples) > _SOFT_POINTS:
        del candidates["soft"]
    along = done_without(candidates["projected"], candidates["tangent"], model, primary)
    edge = edge_errors(candidates, samples, primary, by_trajectory(model.config), along)
    scores = root_mean(edge)
    settled = max(scores.values()) <= FLOOR
    rolled = {} if settled else rolled_out(candidates, model, primary, along)
    best = most_structure(
        edge, rolled, none_first=_is_learned(model, gamma), unsure=unsure_of(model, gamma)
    )
    across = tuple(model.dataset.state_names[i] for i in along)
    choices = replace(
        model.choices, structure=scores, rollouts=root_mean(rolled), used=best, across=across
    )
    model = replace(model, choices=choices)
    if best != "tangent":
        chosen = candidates[best]
        return model.with_constraint(chosen.gamma, model.constraint_fit, chosen.softness)
    complete = complete_dynamics(tangent, samples, primary, config=model.config.dynamics)
    choices = replace(choices, tangent_kernel=kernel)
    return replace(model, predictor=Predictor(complete, gamma), choices=choices)


def constrain_by(model: Model, found: ConstraintFit) -> Model:
    """The model made to obey equations; where all together are of no use, those that do no harm.

    They are taken one after the other, simplest first, if with them held-out data are predicted no
    worse. With many states some of many thousand sums are small by chance, and one such sum among
    them would cost the model what the others are good for. But where being drawn towards all of
    them is clearly better on held-out data, that is done.
    """
    constrained = constrain(replace(model, constraint_fit=found), found.gamma)
    if constrained.choices.used in _FIRM or found.c < _SOME or not model.config.tangent:
        return constrained
    primary, kept = model.dataset.sources.index(model.primary), list[int]()
    before = _judged(Predictor(model.world, None), model, primary)
    unsure = unsure_of(model, found.gamma)
    for row in range(found.c):
        gamma = found.only([*kept, row]).gamma
        after = _judged(Predictor(model.world, gamma), model, primary)
        if _no_worse(after, before, unsure):
            before, kept = after, [*kept, row]
    if not 0 < len(kept) < found.c:
        return constrained
    fewer = found.only(kept)
    again = constrain(replace(model, constraint_fit=fewer), fewer.gamma)
    if again.choices.used not in _FIRM:
        return constrained
    errors = [_judged(each.predictor, model, primary) for each in (again, constrained)]
    if constrained.choices.used == "soft" and not _no_worse(errors[0], errors[1], unsure):
        return constrained
    assert found.equations is not None
    left_out = tuple(str(found.equations[i]) for i in range(found.c) if i not in kept)
    return replace(again, choices=replace(again.choices, left_out=left_out))


def unsure_of(model: Model, gamma: Gamma | None) -> float:
    """The ratio of errors that chance may explain; a larger one where whole drives are held out.

    That is for what was found in the data, which obey it; a Γ that was given has no other judge.
    """
    found = model.constraint_fit is not None and model.constraint_fit.gamma is gamma is not None
    few = _drives(model, model.dataset.sources.index(model.primary)) < _DRIVES
    return OF_DRIVES if by_trajectory(model.config) and (found or few) else UNSURE


def _no_worse(own: list[np.ndarray], others: list[np.ndarray], unsure: float) -> bool:
    """Whether held-out errors are level with others before every judge."""
    pairs = [{"own": a, "other": b} for a, b in zip(own, others, strict=True)]
    return all("own" in level_with_best(pair, FLOOR, unsure=unsure) for pair in pairs)


def _judged(predictor: Predictor, model: Model, primary: int) -> list[np.ndarray]:
    """Errors of one step at the held-out edge, and of held-out rollouts where there are any."""
    candidates, samples = {"it": predictor}, model.dataset.samples()
    edge = edge_errors(candidates, samples, primary, by_trajectory(model.config))
    return [edge["it"], *rolled_out(candidates, model, primary).values()]


def rolled_out(
    candidates: dict[str, Predictor], model: Model, primary: int, along: tuple[int, ...] = ()
) -> dict[str, np.ndarray]:
    """Errors of held-out rollouts, where trajectories are long enough to tell."""
    drives = by_trajectory(model.config)
    return rollout_errors(candidates, model.dataset, primary, model.integrator, drives, along)


def done_without(world: Predictor, frame: Predictor, model: Model, primary: int) -> tuple[int, ...]:
    """States that dynamics in a frame do without, where whole drives are held out.

    Drives in one place do not tell whether a model that sees the place holds elsewhere: those on
    either side of their middle are then predicted from the others.
    """
    names = model.dataset.state_names
    if not by_trajectory(model.config) or _drives(model, primary) < _DRIVES:
        return ()
    seen, kept = (one.dynamics.reduction.names for one in (world, frame))
    return tuple(names.index(name) for name in seen if name in names and name not in kept)


def _drives(model: Model, primary: int) -> int:
    """Number of trajectories of the primary source."""
    samples = model.dataset.samples()
    return len(np.unique(samples.trajectory[samples.source == primary]))


def _is_learned(model: Model, gamma: Gamma) -> bool:
    """Whether Γ was read off f̂, not searched for among short equations.

    Fewer controls than states and dynamics that are affine in them always leave such a Γ, whether
    the robot obeys anything or not: it must prove of use, where an equation need only do no harm.
    """
    found = model.constraint_fit
    return found is not None and found.gamma is gamma and type(gamma) is not DictionaryConstraint


def most_structure(
    *judges: dict[str, np.ndarray],
    none_first: bool = False,
    level: float = LEVEL,
    unsure: float = UNSURE,
) -> str:
    """The last candidate, each having more structure than the one before, that is no worse.

    A candidate must be level with the best before every judge, within 5 % (`level`): where states
    are noisy, a model of the world predicts noisy motions a little better than the law that the
    true states obey; and within `unsure` where chance explains the difference. Where none is level,
    the one that is least behind before the judge that likes it least is taken. `none_first` takes
    no structure at all unless a judge puts that far behind. Being drawn towards a constraint
    ("soft") must be clearly better than none.
    """
    judges = tuple(judge for judge in judges if judge)
    good = set.intersection(
        *(set(level_with_best(judge, FLOOR, level=level, unsure=unsure)) for judge in judges)
    )
    scores = [{n: max(e, FLOOR) for n, e in root_mean(judge).items()} for judge in judges]
    if "none" in good:
        good.discard("soft")  # what it is drawn to would be obeyed to the letter, were it true
    if none_first and all(judge["none"] <= _FAR * min(judge.values()) for judge in scores):
        return "none"
    if good:
        return [name for name in judges[0] if name in good][-1]
    regret = {
        name: max(judge[name] / min(judge.values()) for judge in scores) for name in scores[0]
    }
    return min(regret, key=lambda name: regret[name])


def _softness(gamma: Gamma, samples: Samples, primary: int) -> Array:
    """How far the measured motions of the primary source are from obeying each row of Γ."""
    own = samples.take(np.flatnonzero(samples.source == primary)[:_SOFT_POINTS])
    return _root_mean_residual(gamma, own.x, own.xdot)


@eqx.filter_jit
def _root_mean_residual(gamma, x, xdot):
    residual = jax.vmap(lambda x, xdot: unit_residual(xdot, gamma(x)))(x, xdot)
    return jnp.sqrt(jnp.mean(residual**2, axis=0))


def _fit_tangent(model: Model, gamma: Gamma, simplest: bool = True) -> tuple[Dynamics, str]:
    """Dynamics in the tangent frame of Γ, on the inputs that matter there; and their kernel."""
    dataset, config, key = model.dataset, model.config, stage_keys(model.seed).tangent
    primary = dataset.sources.index(model.primary)
    samples = dataset.samples()
    own = samples.take(np.flatnonzero(samples.source == primary))
    mentions = _mentions(gamma, own.x)
    frame = tangent_frame(gamma, own.x, _periodic(dataset, gamma), mentions)
    frame = commanded_gauge(frame, own.x, own.u, own.xdot, mentions)
    reduction = find_inputs(dataset, targets(samples, frame), primary, key, config).reduction
    dynamics, kernel, _ = fit_stage(
        dataset, reduction, frame, primary, key, config, simplest=simplest
    )
    return dynamics, kernel


def _mentions(gamma: Gamma, x: np.ndarray) -> np.ndarray:
    """Which entries of G are ever other than 0: as equations say, or as states all round show."""
    if isinstance(gamma, DictionaryConstraint):
        return np.any(np.asarray(gamma.weights)[:, :, :-1] != 0, axis=1)
    spread = x.std(axis=0)  # states that never changed are changed here
    away = np.random.default_rng(0).normal(size=x.shape) * np.where(spread > 0, spread, 1.0)
    return np.any(np.asarray(at_each(gamma, x + away))[:, :, :-1] != 0, axis=0)


def _periodic(dataset: Dataset, gamma: Gamma) -> tuple[int, ...]:
    """States in which Γ repeats after 2π: declared angles, or those it sees by sines alone."""
    if not isinstance(gamma, DictionaryConstraint):
        return dataset.angle_indices
    used = np.any(np.asarray(gamma.weights) != 0, axis=(0, 2))
    straight = [states for states, kept in zip(gamma.library.straight, used, strict=True) if kept]
    return tuple(sorted({*range(dataset.n)}.difference(*straight)))
