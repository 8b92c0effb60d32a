"""Those who do the work of a sweep: this process, processes of this machine, actors of Ray."""

import logging
import multiprocessing
import multiprocessing.connection
import os
import pickle
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import jax
from threadpoolctl import threadpool_limits

Engine = Literal["pool", "ray", "serial"]
Hire = Callable[[int], "AbstractWorker"]
"""A new worker for a seat, of which there is a fixed number."""


def prepare_process() -> None:
    """Set a process up to compute: one BLAS thread, and compiled programs kept between runs.

    JAX has threads of its own: more of BLAS would fight for the same cores. A cache that was
    configured already, by hand or by JAX_COMPILATION_CACHE_DIR, stays.
    """
    threadpool_limits(1, "blas")
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(root / "offmap" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


class AbstractWorker(ABC):
    """Runs one case at a time."""

    @abstractmethod
    def ready(self) -> Future:
        """Done when the worker can begin, which on a busy cluster may be never."""

    @abstractmethod
    def call(self, function: Callable[[Any], Any], case: Any) -> Future:
        """The function's answer, or its error, once there is one."""

    @abstractmethod
    def lost(self, error: BaseException) -> bool:
        """Whether the worker died, rather than the function failed."""

    def reason(self, error: BaseException) -> BaseException:
        """What the function raised."""
        return error

    @abstractmethod
    def close(self) -> None:
        """Let the worker go."""


def check_engine(
    function: Callable[[Any], Any],
    engine: str,
    workers: int | None,
    address: str | None,
    gpus: float | int,
) -> None:
    """Refuse what no engine can do before any work is done."""
    if engine not in get_args(Engine):
        raise ValueError(
            f"An engine is one of {', '.join(get_args(Engine))}; got {engine!r}. Choose among them."
        )
    if workers is not None and workers < 1:
        raise ValueError(f"A sweep needs at least one worker; got {workers}. Ask for 1 or more.")
    if address is not None and engine != "ray":
        raise ValueError(
            f"An address is that of a Ray cluster; got {address!r} with engine {engine!r}. Leave "
            f"it out, or choose the engine 'ray'."
        )
    if gpus < 0:
        raise ValueError(f"A worker has 0 or more GPUs; got {gpus}. Give 0, 1 or a share of one.")
    if engine == "pool":
        try:
            pickle.dumps(function)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                f"A pool runs a function that its processes can import; got {function!r} "
                f"({error}). Define it at the top of a module, or use the engine 'serial'."
            ) from error


@contextmanager
def engaged(
    engine: Engine, workers: int | None, address: str | None, gpus: float | int
) -> Iterator[tuple[Hire, int]]:
    """A way to hire workers, and how many there are to be."""
    if engine == "serial":
        yield lambda seat: _Here(), 1
    elif engine == "pool":
        yield partial(_Process, gpus=gpus), workers or os.cpu_count() or 1
    else:
        with _cluster(address) as ray:
            if workers is None:
                total = ray.cluster_resources()
                workers = int(total.get("CPU", 1))
                if gpus:
                    workers = min(workers, int(total.get("GPU", 0) / gpus))
            actor = ray.remote(num_cpus=1, num_gpus=gpus)(_Actor)
            yield lambda seat: _OnRay(ray, actor.remote()), max(1, workers)


class _Here(AbstractWorker):
    """This process: the case is done when `call` returns."""

    def ready(self) -> Future:
        return _done(None)

    def call(self, function: Callable[[Any], Any], case: Any) -> Future:
        try:
            with threadpool_limits(1, "blas"):
                return _done(function(case))
        except Exception as error:
            future: Future = Future()
            future.set_exception(error)
            return future

    def lost(self, error: BaseException) -> bool:
        return False

    def close(self) -> None:
        """Nothing to let go."""


class _Process(AbstractWorker):
    """A process of its own, started afresh: JAX has threads, which a fork would leave behind."""

    def __init__(self, seat: int, *, gpus: float | int) -> None:
        self._pool = ProcessPoolExecutor(
            1,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_begin_process,
            initargs=(_devices(seat, gpus), *_cache_settings()),
        )

    def ready(self) -> Future:
        return self._pool.submit(os.getpid)

    def call(self, function: Callable[[Any], Any], case: Any) -> Future:
        return self._pool.submit(function, case)

    def lost(self, error: BaseException) -> bool:
        return isinstance(error, BrokenProcessPool)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _begin_process(devices: str, cache: str | None, least_seconds: float) -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = devices  # read when JAX first computes
    if cache is not None:
        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", least_seconds)
    prepare_process()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A killed driver cannot say goodbye: nobody would ever end its processes."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _devices(seat: int, gpus: float | int) -> str:
    """The GPUs of one process: a share of one, or one or more of its own."""
    if not gpus:
        return ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    first, count = int(seat * gpus), max(1, int(gpus))
    if visible is None:
        return ",".join(str(first + i) for i in range(count))
    return ",".join(visible.split(",")[first : first + count])


def _cache_settings() -> tuple[str | None, float]:
    """Where this process keeps compiled programs, so that its children do the same."""
    return (
        getattr(jax.config, "jax_compilation_cache_dir", None),
        getattr(jax.config, "jax_persistent_cache_min_compile_time_secs", 1.0),
    )


class _Actor:
    """What runs on a node of the cluster."""

    def __init__(self) -> None:
        prepare_process()

    def ready(self) -> None:
        """Answer, as a sign of life."""

    def call(self, function: Callable[[Any], Any], case: Any) -> Any:
        return function(case)


class _OnRay(AbstractWorker):
    """An actor of Ray, on whichever node has room for it."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor

    def ready(self) -> Future:
        return self._actor.ready.remote().future()

    def call(self, function: Callable[[Any], Any], case: Any) -> Future:
        return self._actor.call.remote(function, case).future()

    def lost(self, error: BaseException) -> bool:
        errors = self._ray.exceptions
        return isinstance(error, errors.RayError) and not isinstance(error, errors.RayTaskError)

    def reason(self, error: BaseException) -> BaseException:
        return getattr(error, "cause", error)  # without the traceback of the node in its text

    def close(self) -> None:
        self._ray.kill(self._actor)


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Ray, connected to the cluster at an address, or to one of this machine alone."""
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            "The engine 'ray' needs the package ray, which is not installed. Install it with "
            "pip install 'offmap[ray]', or use the engine 'pool' on this machine."
        ) from error
    ours = not ray.is_initialized()
    if ours:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


def _done(answer: Any) -> Future:
    future: Future = Future()
    future.set_result(answer)
    return future
