"""Several trajectories of one robot, with named columns, as one table of samples."""

import difflib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from offmap.data.history import history_length, history_names, with_past_commands
from offmap.data.trajectory import Trajectory
from offmap.data.wrapping import check_radians, warn_of_wrapped_columns

__all__ = ["Dataset", "Samples"]

DT_TOLERANCE = 1e-6  # relative; the rounding of a logged clock, not a different rate
CONSTANT_TOLERANCE = 1e-12  # relative spread of a column that is rounding only
DUPLICATE_SHARE = 0.1
_BY_POSITION: Any = None  # names left out become x0, x1, … and u0, u1, …


@dataclass(frozen=True, eq=False)
class Samples:
    """The samples of a whole dataset, one row each, in the order of its trajectories.

    Attributes:
        x: States.
        u: Controls.
        xdot: State derivatives, measured, told from states or by forward differences.
        source: Position of each sample's source in `Dataset.sources`.
        trajectory: Index of the trajectory each sample comes from.
    """

    x: Float[np.ndarray, "N n"]
    u: Float[np.ndarray, "N m"]
    xdot: Float[np.ndarray, "N n"]
    source: Int[np.ndarray, " N"]
    trajectory: Int[np.ndarray, " N"]

    def __post_init__(self) -> None:
        for array in (self.x, self.u, self.xdot, self.source, self.trajectory):
            array.setflags(write=False)

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def take(self, rows: Int[np.ndarray, " R"]) -> "Samples":
        """The given rows, in the given order."""
        columns = (self.x, self.u, self.xdot, self.source, self.trajectory)
        return Samples(*(column[rows] for column in columns))


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Trajectories of one robot, of any lengths and sources, ready to fit.

    Attributes:
        trajectories: The logs; all with the same columns and the same time step.
        state_names: One name per state column; x0, x1, … when None is given.
        control_names: One name per control column; u0, u1, … when None is given.
        angles: Names of the state columns that are angles in radians (indices are accepted too);
            they are unwrapped before differencing. The states themselves stay as logged.
    """

    trajectories: tuple[Trajectory, ...]
    state_names: tuple[str, ...] = _BY_POSITION
    control_names: tuple[str, ...] = _BY_POSITION
    angles: tuple[str, ...] = ()

    # Any input may arrive here and is refused with a ValueError, also where tests check types.
    __no_type_check__ = True

    if TYPE_CHECKING:  # what the constructor accepts is wider than what it stores

        def __init__(
            self,
            trajectories: Sequence[Trajectory],
            state_names: Sequence[str] | None = None,
            control_names: Sequence[str] | None = None,
            angles: Sequence[str | int] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        trajectories = _as_trajectories(self.trajectories)
        first = trajectories[0]
        state_names = _as_names(self.state_names, "state_names", "x", first.n)
        control_names = _as_names(self.control_names, "control_names", "u", first.m)
        _check_distinct(state_names + control_names)
        object.__setattr__(self, "trajectories", trajectories)
        object.__setattr__(self, "state_names", state_names)
        object.__setattr__(self, "control_names", control_names)
        object.__setattr__(self, "angles", _as_angles(self.angles, state_names))
        warn_of_wrapped_columns(trajectories, state_names, self.angles)
        check_radians(trajectories, state_names, self.angles)

    @property
    def n(self) -> int:
        """Number of state columns."""
        return self.trajectories[0].n

    @property
    def m(self) -> int:
        """Number of control columns."""
        return self.trajectories[0].m

    @property
    def history(self) -> int:
        """Number of past commands among the controls; see `with_history`."""
        return history_length(self.control_names)

    @property
    def dt(self) -> float:
        """Seconds between rows, common to all trajectories."""
        return self.trajectories[0].dt

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs of the dynamics, states before controls."""
        return self.state_names + self.control_names

    @property
    def angle_indices(self) -> tuple[int, ...]:
        """State columns that are angles."""
        return tuple(self.state_names.index(name) for name in self.angles)

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Distinct sources, in order of first appearance."""
        return tuple(dict.fromkeys(trajectory.source for trajectory in self.trajectories))

    def __len__(self) -> int:
        return len(self.trajectories)

    def __iter__(self) -> Iterator[Trajectory]:
        return iter(self.trajectories)

    def __repr__(self) -> str:
        return (
            f"Dataset({len(self)} trajectories, states={list(self.state_names)}, "
            f"controls={list(self.control_names)}, dt={self.dt:g}, sources={list(self.sources)})"
        )

    def samples(self) -> Samples:
        """Return all samples as one table, computed once."""
        return self._samples

    @cached_property
    def _samples(self) -> Samples:
        angles, code = self.angle_indices, {name: i for i, name in enumerate(self.sources)}
        parts = [trajectory.samples(angles) for trajectory in self.trajectories]
        x, u, xdot = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        index = np.repeat(range(len(self)), [len(part[0]) for part in parts])
        codes = np.array([code[trajectory.source] for trajectory in self])
        return Samples(x, u, xdot, source=codes[index], trajectory=index)

    def select(self, source: str) -> "Dataset":
        """Return the dataset with only the trajectories of one source."""
        if source not in self.sources:
            raise ValueError(
                f"source must be one of {list(self.sources)}; received {source!r}; "
                + _nearest(source, self.sources)
            )
        return replace(self, trajectories=tuple(t for t in self if t.source == source))

    def append(self, trajectory: Trajectory) -> "Dataset":
        """Return a new dataset with one more trajectory at the end.

        Where the dataset has past commands as columns, so gets a trajectory that lacks them.
        """
        trajectory = self.stacked(trajectory)
        longer = replace(self, trajectories=(*self.trajectories, trajectory))
        if "_samples" in self.__dict__:  # only what is new needs to be computed
            object.__setattr__(longer, "_samples", self._samples_with(trajectory, longer.sources))
        return longer

    def stacked(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory with past commands as columns, where the dataset has them and it lacks."""
        if self.history and trajectory.m * (self.history + 1) == self.m:
            return with_past_commands(trajectory, self.history)
        return trajectory

    def _samples_with(self, trajectory: Trajectory, sources: tuple[str, ...]) -> Samples:
        before, (x, u, xdot) = self.samples(), trajectory.samples(self.angle_indices)
        return Samples(
            np.concatenate([before.x, x]),
            np.concatenate([before.u, u]),
            np.concatenate([before.xdot, xdot]),
            source=np.append(before.source, np.full(len(x), sources.index(trajectory.source))),
            trajectory=np.append(before.trajectory, np.full(len(x), len(self))),
        )

    def with_history(self, k: int) -> "Dataset":
        """Return the dataset with the k commands before each as further control columns.

        The first k steps of every trajectory have no full history and are dropped.
        """
        if self.history:
            raise ValueError(
                f"past commands are added once; the controls already hold {self.history} of them: "
                f"{list(self.control_names)}; start from the dataset without"
            )
        return replace(
            self,
            trajectories=tuple(with_past_commands(trajectory, k) for trajectory in self),
            control_names=history_names(self.control_names, k),
        )

    def check_inputs(self) -> None:
        """Raise where the samples cannot support a fit, and warn where they repeat themselves."""
        inputs = np.concatenate([self.samples().x, self.samples().u], axis=1)
        count, width = inputs.shape
        if count < width + 2:
            raise ValueError(
                f"a fit needs at least {width + 2} samples, two more than its {width} inputs; "
                f"received {count}; add trajectories or longer ones"
            )
        _check_repeated_trajectories(self.trajectories)
        _check_constant_columns(inputs, self.input_names)
        _warn_of_duplicate_rows(inputs)


def _as_trajectories(given: Any) -> tuple[Trajectory, ...]:
    items = tuple(given) if isinstance(given, Iterable) else ()
    wrong = [k for k, item in enumerate(items) if not isinstance(item, Trajectory)]
    if wrong or not items:
        received = f"{items[wrong[0]]!r:.80} as item {wrong[0]}" if wrong else repr(given)
        raise ValueError(
            "trajectories must be a sequence of at least one Trajectory; "
            f"received {received}; give a list such as [Trajectory(x, u)]"
        )
    for index, item in enumerate(items):
        _check_alike(items[0], item, index)
    return items


def _check_alike(first: Trajectory, other: Trajectory, index: int) -> None:
    for what, expected, received, remedy in (
        ("number of states", first.n, other.n, "keep the columns they share"),
        ("number of controls", first.m, other.m, "keep the columns they share"),
        ("dt", first.dt, other.dt, "resample them to one rate"),
    ):
        if abs(received - expected) > DT_TOLERANCE * expected:
            raise ValueError(
                f"all trajectories must have the same {what}; received {received!r} in trajectory "
                f"{index} and {expected!r} in trajectory 0; {remedy}"
            )


def _as_names(given: Any, what: str, letter: str, count: int) -> tuple[str, ...]:
    if given is None:
        return tuple(f"{letter}{index}" for index in range(count))
    names = () if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    if len(names) != count or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(
            f"{what} must be {count} non-empty strings, one per column; received {given!r}; "
            f"name each column, or leave {what} out for {letter}0, {letter}1, …"
        )
    return names


def _check_distinct(names: tuple[str, ...]) -> None:
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if repeated:
        raise ValueError(
            f"state and control names must all differ; received {repeated} more than once in "
            f"{list(names)}; rename the repeated columns"
        )


def _as_angles(given: Any, state_names: tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ValueError(
            f"angles must be a sequence of state names or indices; received {given!r}; "
            "give a list, also for one angle"
        )
    names = []
    for angle in given:
        is_index = isinstance(angle, int | np.integer) and not isinstance(angle, bool)
        if is_index and 0 <= angle < len(state_names):
            angle = state_names[int(angle)]
        if angle not in state_names:
            raise ValueError(
                f"angles must be state columns, by name {list(state_names)} or index 0 to "
                f"{len(state_names) - 1}; received {angle!r}; {_nearest(angle, state_names)}"
            )
        names.append(angle)
    return tuple(dict.fromkeys(names))


def _nearest(name: object, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(str(name), known)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else "use one of those"


def _check_repeated_trajectories(trajectories: tuple[Trajectory, ...]) -> None:
    seen: dict[tuple[object, ...], int] = {}
    for index, trajectory in enumerate(trajectories):
        log = (trajectory.x.shape, trajectory.x.tobytes(), trajectory.u.tobytes())
        original = seen.setdefault(log, index)
        if original != index:
            raise ValueError(
                f"every trajectory must be given once; received trajectory {index} with the same "
                f"states and controls as trajectory {original}; remove one of them"
            )


def _check_constant_columns(inputs: Float[np.ndarray, "N inputs"], names: tuple[str, ...]) -> None:
    constant = np.ptp(inputs, axis=0) <= CONSTANT_TOLERANCE * np.abs(inputs).max(axis=0)
    if constant.any():
        found = ", ".join(f"{names[k]!r} = {inputs[0, k]:g}" for k in np.flatnonzero(constant))
        raise ValueError(
            f"every state and control column must vary; received constant {found}; nothing can be "
            "learned about their influence: drop these columns or vary them"
        )


def _warn_of_duplicate_rows(inputs: Float[np.ndarray, "N inputs"]) -> None:
    order = np.lexsort(inputs.T)  # stable: of equal rows, the earliest comes first
    repeats = order[1:][(inputs[order[1:]] == inputs[order[:-1]]).all(axis=1)]
    if repeats.size > DUPLICATE_SHARE * len(inputs):
        warnings.warn(
            f"samples should differ; received {repeats.size} of {len(inputs)} rows (x, u) that "
            f"repeat an earlier one, first at sample {int(repeats.min())}; thin out standstill or "
            "repeated recordings, which weigh these points too much",
            UserWarning,
            stacklevel=3,
        )
