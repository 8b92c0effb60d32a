"""The peers behind one small interface; what is not installed says so instead of taking part."""

import importlib.util
import warnings
from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Float


class AbstractPeer(ABC):
    """Another library's model of x' from (x, u), by the ordinary recipe of its documentation."""

    name: str
    recipe: str
    needs: tuple[str, ...]
    """Modules that have to be installed."""

    @abstractmethod
    def fit(self, x: Float[np.ndarray, "N d"], y: Float[np.ndarray, "N n"], brief: bool) -> None:
        """Train on inputs (state, control) and velocities.

        With `brief`, hyperparameters are hardly searched: what a prediction costs stays the same.
        """

    @abstractmethod
    def predict(self, x: Float[np.ndarray, "B d"]) -> Float[np.ndarray, "B n"]:
        """Mean velocities of a batch, NumPy in and out."""

    def rollouts(
        self, x0: Float[np.ndarray, "B n"], controls: Float[np.ndarray, "B T m"], dt: float
    ) -> Float[np.ndarray, "B S n"]:
        """Euler steps of all rollouts together: one batched prediction a step."""
        states = [x0]
        for k in range(controls.shape[1]):
            now = np.concatenate([states[-1], controls[:, k]], axis=1)
            states.append(states[-1] + dt * self.predict(now))
        return np.stack(states, axis=1)


class ScikitLearn(AbstractPeer):
    """GaussianProcessRegressor."""

    name = "scikit-learn"
    recipe = "GP, one ARD RBF + white kernel for all outputs, L-BFGS, float64"
    needs = ("sklearn",)

    def fit(self, x: Float[np.ndarray, "N d"], y: Float[np.ndarray, "N n"], brief: bool) -> None:
        """Train by marginal likelihood."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        self._mean, self._scale = x.mean(axis=0), x.std(axis=0)
        kernel = ConstantKernel() * RBF(np.ones(x.shape[1])) + WhiteKernel(1e-4, (1e-10, 1.0))
        self._gp = GaussianProcessRegressor(
            kernel, normalize_y=True, optimizer=None if brief else "fmin_l_bfgs_b"
        )
        with warnings.catch_warnings():  # irrelevant inputs reach the bounds of their length scale
            warnings.simplefilter("ignore")
            self._gp.fit((x - self._mean) / self._scale, y)

    def predict(self, x: Float[np.ndarray, "B d"]) -> Float[np.ndarray, "B n"]:
        """Mean velocities of a batch."""
        return self._gp.predict((x - self._mean) / self._scale)


class PySINDy(AbstractPeer):
    """Sparse regression on a library of functions."""

    name = "PySINDy"
    recipe = "STLSQ (threshold 0.1), polynomials of degree 2 and sines of all inputs"
    needs = ("pysindy",)

    def fit(self, x: Float[np.ndarray, "N d"], y: Float[np.ndarray, "N n"], brief: bool) -> None:
        """Train by thresholded least squares."""
        import pysindy

        self._n = y.shape[1]
        library = pysindy.PolynomialLibrary(degree=2) + pysindy.FourierLibrary(n_frequencies=1)
        self._model = pysindy.SINDy(optimizer=pysindy.STLSQ(threshold=0.1), feature_library=library)
        with warnings.catch_warnings():  # the library's terms are partly collinear
            warnings.simplefilter("ignore")
            self._model.fit(x[:, : self._n], t=1.0, x_dot=y, u=x[:, self._n :])

    def predict(self, x: Float[np.ndarray, "B d"]) -> Float[np.ndarray, "B n"]:
        """Velocities of a batch."""
        return np.asarray(self._model.predict(x[:, : self._n], u=x[:, self._n :]))


def all_peers() -> tuple[AbstractPeer, ...]:
    """Every peer the bench knows, installed or not."""
    from offmap.bench.torch_peers import BoTorch, GPyTorch, MLPEnsemble

    return (GPyTorch(), BoTorch(), ScikitLearn(), PySINDy(), MLPEnsemble())


def missing_modules(needs: tuple[str, ...]) -> str | None:
    """Why something that needs these modules cannot take part, or None."""
    absent = [module for module in needs if importlib.util.find_spec(module) is None]
    if not absent:
        return None
    return f"{', '.join(absent)} not installed; pip install 'offmap[bench]'"


def present(
    peers: tuple[AbstractPeer, ...],
) -> tuple[list[AbstractPeer], dict[str, str]]:
    """The peers that can take part, and why the others cannot."""
    reasons = {peer.name: missing_modules(peer.needs) for peer in peers}
    skipped = {name: reason for name, reason in reasons.items() if reason is not None}
    return [peer for peer in peers if peer.name not in skipped], skipped
