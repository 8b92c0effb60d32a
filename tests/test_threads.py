"""BLAS threads are limited while offmap works, and given back afterwards."""

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from offmap.threads import one_blas_thread


def blas_threads() -> set[int]:
    np.eye(2) @ np.eye(2)
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_one_thread_inside_and_as_before_outside() -> None:
    with threadpool_limits(2, "blas"):
        before = blas_threads()
        assert one_blas_thread(blas_threads)() == {1}
        assert blas_threads() == before


def test_they_are_given_back_after_an_error() -> None:
    def fail() -> None:
        raise RuntimeError

    with threadpool_limits(2, "blas"):
        before = blas_threads()
        try:
            one_blas_thread(fail)()
        except RuntimeError:
            assert blas_threads() == before
