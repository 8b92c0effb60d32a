"""Run a function on many cases, and keep each answer in a file of its own."""

import hashlib
import json
import math
import os
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from offmap.storage import replacing
from offmap.sweeping.workers import AbstractWorker, Engine, Hire, check_engine, engaged
from offmap.types import Progress, silent

_ATTEMPTS = 3  # workers that one case may cost before it is to blame


def sweep(
    function: Callable[[Any], Any],
    cases: Mapping[str, Any] | Iterable[Any],
    *,
    out: str | os.PathLike[str],
    engine: Engine = "pool",
    workers: int | None = None,
    address: str | None = None,
    gpus: float | int = 0,
    together: Callable[[Any], Hashable] | None = None,
    fresh: bool = False,
    progress: Progress = silent,
) -> Any:
    """Answers of a function for many cases, each kept in OUT/NAME.json as soon as it is there.

    Answers that the folder holds are read instead of computed, so a run that was killed goes on
    where it was; a folder belongs to one function. A case whose worker is lost is given to another.
    If the function fails on a case, the cases then under way are finished before its error is
    raised.

    Args:
        function: takes a case; returns what JSON can hold, or arrays, which become lists. Both
            travel between processes, so the function is one that can be imported; a script that
            uses a pool has its own work below `if __name__ == "__main__":`.
        cases: names and cases; or cases alone, which are then named by what they are.
        out: folder for the answers. Only this process writes to it.
        engine: "pool" (processes of this machine), "ray" (a cluster) or "serial" (this process).
        workers: how many at a time; as many as there are cores if None.
        address: of the Ray cluster; one on this machine alone if None.
        gpus: for each worker, such as 1 or 0.25; with 0 a pool computes on the CPU.
        together: cases with equal values are run one after the other by the same worker, as far as
            that leaves none idle. For a function that keeps what such cases share.
        fresh: compute also what the folder holds.
        progress: called as each answer arrives.

    Returns:
        The answers as the files hold them: by name, or in the order of unnamed cases.
    """
    check_engine(function, engine, workers, address, gpus)
    unnamed = None if isinstance(cases, Mapping) else list(cases)
    named = cases if isinstance(cases, Mapping) else {_name(case): case for case in unnamed or ()}
    folder = Folder(out)
    waiting = {name: case for name, case in named.items() if fresh or folder.read(name) is None}
    if waiting:
        with engaged(engine, workers, address, gpus) as (hire, most):
            seats = min(most, len(waiting))
            shares = _shares(waiting, together, seats)
            keep = _Keeper(folder, len(waiting), progress)
            _Run(function, hire, deque(shares), keep).finish(seats)
    answers = {name: _unwrapped(folder.read(name)) for name in named}
    return answers if unnamed is None else [answers[_name(case)] for case in unnamed]


class Folder:
    """Answers as JSON files, each written whole or not at all."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def holds(self, name: str) -> bool:
        """Whether there is an answer of this name."""
        return self.read(name) is not None

    def read(self, name: str) -> tuple[Any] | None:
        """The answer in brackets, as it may be None itself; None if there is no whole one."""
        try:
            return (json.loads(self._file(name).read_text("utf-8")),)
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def write(self, name: str, answer: Any) -> None:
        """Put an answer in its place."""
        try:
            text = json.dumps(answer, indent=1, ensure_ascii=False, default=_plain)
        except TypeError as error:
            raise ValueError(
                f"The answers of a sweep are what JSON can hold, or arrays; that of {name}: "
                f"{error}. Return numbers, texts, lists and dictionaries."
            ) from error
        self.path.mkdir(parents=True, exist_ok=True)
        with replacing(self._file(name)) as temporary:
            temporary.write_text(text + "\n", "utf-8")

    def _file(self, name: str) -> Path:
        if not name or name.startswith(".") or set(name) & set('/\\:*?"<>|'):
            raise ValueError(
                f"The name of a case is that of its file; got {name!r}. Use letters, digits, dots "
                f"and dashes."
            )
        return self.path / f"{name}.json"


class _Job(NamedTuple):
    name: str
    case: Any


@dataclass
class _Keeper:
    """Puts answers into the folder as they arrive, and says so."""

    folder: Folder
    total: int
    progress: Progress
    done: int = 0

    def __call__(self, name: str, answer: Any) -> None:
        self.folder.write(name, answer)
        self.done += 1
        self.progress(f"{name} ({self.done} of {self.total})")


@dataclass
class _Seat:
    """One worker's place: who sits there, and the jobs that are theirs, the current one first."""

    number: int
    worker: AbstractWorker
    jobs: deque[_Job] = field(default_factory=deque)


@dataclass
class _Run:
    """Hands shares of the jobs to workers until all are done."""

    function: Callable[[Any], Any]
    hire: Hire
    waiting: deque[deque[_Job]]
    keep: _Keeper
    busy: dict[Future, _Seat] = field(default_factory=dict)
    idle: list[_Seat] = field(default_factory=list)
    losses: Counter = field(default_factory=Counter)
    failure: BaseException | None = None

    def finish(self, seats: int) -> None:
        """Run all jobs on so many seats."""
        try:
            for number in range(seats):
                self._fill(number)
            while self.waiting or any(seat.jobs for seat in self.busy.values()):
                done, _ = wait(self.busy, return_when=FIRST_COMPLETED)
                for future in done:
                    self._hear(future, self.busy.pop(future))
                while self.idle and self.waiting:
                    seat = self.idle.pop()
                    seat.jobs = self.waiting.popleft()
                    self._give_next(seat)
        finally:
            for seat in (*self.busy.values(), *self.idle):
                seat.worker.close()
        if self.failure is not None:
            raise self.failure

    def _fill(self, number: int) -> None:
        """Hire for a seat. Its worker gets jobs once there: a full cluster may never start it."""
        seat = _Seat(number, self.hire(number))
        self.busy[seat.worker.ready()] = seat

    def _hear(self, future: Future, seat: _Seat) -> None:
        error = future.exception()
        if error is None:
            if seat.jobs:
                self.keep(seat.jobs.popleft().name, future.result())
            self._give_next(seat)
        elif not seat.jobs or seat.worker.lost(error):
            self._replace(seat, error)
        else:
            reason = seat.worker.reason(error)
            reason.add_note(f"in the case {seat.jobs[0].name} of a sweep")
            self.failure = self.failure or reason
            self.waiting.clear()
            seat.jobs.clear()
            self._give_next(seat)

    def _give_next(self, seat: _Seat) -> None:
        if self.failure is not None:
            seat.jobs.clear()
        if seat.jobs:
            self.busy[seat.worker.call(self.function, seat.jobs[0].case)] = seat
        else:
            self.idle.append(seat)

    def _replace(self, seat: _Seat, error: BaseException) -> None:
        """A worker was lost: others get its jobs, and somebody else its seat."""
        name = seat.jobs[0].name if seat.jobs else ""
        self.losses[name] += 1
        if self.losses[name] >= _ATTEMPTS:
            what = f"the case {name}" if name else "starting"
            raise ChildProcessError(
                f"A worker of a sweep has to live until its case is done; {_ATTEMPTS} were lost "
                f"while {what} ({error}). Look for memory that runs out, or for a script "
                f'without `if __name__ == "__main__":`.'
            )
        if seat.jobs and self.failure is None:
            self.waiting.appendleft(seat.jobs)
        seat.worker.close()
        self._fill(seat.number)


def _shares(
    cases: Mapping[str, Any], together: Callable[[Any], Hashable] | None, seats: int
) -> list[deque[_Job]]:
    """Jobs in the portions that workers take: those that belong together, split if too few."""
    groups: dict[Hashable, list[_Job]] = {}
    for name, case in cases.items():
        groups.setdefault(name if together is None else together(case), []).append(_Job(name, case))
    parts = math.ceil(seats / len(groups))
    shares = []
    for jobs in groups.values():
        size = math.ceil(len(jobs) / parts)
        shares += [deque(jobs[i : i + size]) for i in range(0, len(jobs), size)]
    return shares


def _name(case: Any) -> str:
    """A name that equal cases, and only they, share; the case itself where that is short."""
    if isinstance(case, int):
        return str(case)
    try:
        content = asdict(case) if is_dataclass(case) and not isinstance(case, type) else case
        text = json.dumps(content, sort_keys=True, default=_plain)
    except TypeError as error:
        raise ValueError(
            f"Cases without names are numbers, texts, lists, dictionaries or records of them; got "
            f"{type(case).__name__} ({error}). Give a mapping from names to cases."
        ) from error
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _plain(value: Any) -> Any:
    """Arrays as lists, for JSON."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if hasattr(value, "__array__"):
        return np.asarray(value).tolist()
    raise TypeError(f"{type(value).__name__} is not for JSON")


def _unwrapped(held: tuple[Any] | None) -> Any:
    assert held is not None
    return held[0]
