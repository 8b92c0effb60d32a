"""Threads of the linear algebra libraries, which must not fight with JAX's own."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import threadpool_limits

P = ParamSpec("P")
T = TypeVar("T")


def one_blas_thread(function: Callable[P, T]) -> Callable[P, T]:
    """Let BLAS use one thread while the function runs: JAX calls it from threads of its own.

    With as many BLAS threads as cores in each of them, a fit was ten times slower.
    """

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        with threadpool_limits(1, "blas"):
            return function(*args, **kwargs)

    return limited
