"""Threads of the linear algebra libraries, which must not fight with JAX's own."""

from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def one_blas_thread(function: Callable[P, T]) -> Callable[P, T]:
    """Let BLAS use one thread while the function runs: JAX calls it from threads of its own.

    With as many BLAS threads as cores in each of them, a fit was ten times slower. In a checkout on
    a bare machine without threadpoolctl, set OPENBLAS_NUM_THREADS=1 for the process instead.
    """
    if find_spec("threadpoolctl") is None:
        return function

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1, "blas"):
            return function(*args, **kwargs)

    return limited
