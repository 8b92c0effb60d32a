"""Peers on PyTorch: GPyTorch, BoTorch and an ensemble of networks."""

import warnings
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float

from offmap.bench.peers import AbstractPeer

_ADAM_STEPS = 100
_EPOCHS = 500


class _Standard:
    """Inputs and outputs with mean 0 and spread 1, as every recipe here asks."""

    def __init__(self, x: np.ndarray, y: np.ndarray, dtype: Any):
        import torch

        self.dtype = dtype
        self.x_mean, self.x_scale = x.mean(axis=0), x.std(axis=0)
        self.y_mean, self.y_scale = y.mean(axis=0), y.std(axis=0)
        self.y = torch.as_tensor((y - self.y_mean) / self.y_scale, dtype=dtype)
        self.x = self.into(x)

    def into(self, x: np.ndarray) -> Any:
        """Inputs as the model sees them."""
        import torch

        return torch.as_tensor((x - self.x_mean) / self.x_scale, dtype=self.dtype)

    def back(self, y: Any) -> np.ndarray:
        """Velocities from what the model gives."""
        return y.numpy().astype(np.float64) * self.y_scale + self.y_mean


class GPyTorch(AbstractPeer):
    """Exact GPs in a batch, one for each output."""

    name = "GPyTorch"
    recipe = f"exact ARD RBF GPs in one batch, {_ADAM_STEPS} Adam steps, float64"
    needs = ("torch", "gpytorch")

    def fit(self, x: Float[np.ndarray, "N d"], y: Float[np.ndarray, "N n"], brief: bool) -> None:
        """Train by marginal likelihood."""
        import torch

        self._data = _Standard(x, y, torch.float64)
        self._model, objective = _exact_gps(self._data.x, self._data.y.T)
        optimiser = torch.optim.Adam(self._model.parameters(), lr=0.1)
        self._model.train()
        for _ in range(1 if brief else _ADAM_STEPS):
            optimiser.zero_grad()
            loss = -objective(self._model(self._data.x), self._data.y.T).sum()
            loss.backward()
            optimiser.step()
        self._model.eval()

    def predict(self, x: Float[np.ndarray, "B d"]) -> Float[np.ndarray, "B n"]:
        """Mean velocities of a batch; the solve behind the mean is cached, no variance asked."""
        with _means_only():
            return self._data.back(self._model(self._data.into(x)).mean.T)


class BoTorch(AbstractPeer):
    """SingleTaskGP."""

    name = "BoTorch"
    recipe = "SingleTaskGP, fit_gpytorch_mll, float64"
    needs = ("torch", "botorch")

    def fit(self, x: Float[np.ndarray, "N d"], y: Float[np.ndarray, "N n"], brief: bool) -> None:
        """Train by its own routine."""
        import torch
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from gpytorch.mlls import ExactMarginalLogLikelihood

        self._data = _Standard(x, y, torch.float64)
        with warnings.catch_warnings():  # it warns about inputs outside the unit cube
            warnings.simplefilter("ignore")
            self._model = SingleTaskGP(self._data.x, self._data.y, outcome_transform=None)
            objective = ExactMarginalLogLikelihood(self._model.likelihood, self._model)
            options = {"options": {"maxiter": 1}} if brief else {}
            fit_gpytorch_mll(objective, optimizer_kwargs=options)
        self._model.eval()

    def predict(self, x: Float[np.ndarray, "B d"]) -> Float[np.ndarray, "B n"]:
        """Mean velocities of a batch."""
        with _means_only():
            return self._data.back(self._model.posterior(self._data.into(x)).mean)


class MLPEnsemble(AbstractPeer):
    """Five networks with two hidden layers of 128, evaluated as one batched product."""

    name = "MLP ensemble"
    recipe = f"PyTorch, 5 × 2 × 128, {_EPOCHS} full-batch Adam steps, float32"
    needs = ("torch",)

    def fit(self, x: Float[np.ndarray, "N d"], y: Float[np.ndarray, "N n"], brief: bool) -> None:
        """Train by least squares."""
        import torch

        self._data = _Standard(x, y, torch.float32)
        random = torch.Generator().manual_seed(0)
        sizes = (x.shape[1], 128, 128, y.shape[1])
        self._layers = [
            (
                (torch.randn(5, a, b, generator=random) / a**0.5).requires_grad_(),
                torch.zeros(5, 1, b).requires_grad_(),
            )
            for a, b in pairwise(sizes)
        ]
        optimiser = torch.optim.Adam([p for layer in self._layers for p in layer], lr=1e-3)
        for _ in range(2 if brief else _EPOCHS):
            optimiser.zero_grad()
            loss = ((self._forward(self._data.x) - self._data.y) ** 2).mean()
            loss.backward()
            optimiser.step()

    def predict(self, x: Float[np.ndarray, "B d"]) -> Float[np.ndarray, "B n"]:
        """Mean velocities of a batch."""
        import torch

        with torch.inference_mode():
            return self._data.back(self._forward(self._data.into(x)).mean(dim=0))

    def _forward(self, x: Any) -> Any:
        import torch

        hidden = x.expand(5, *x.shape)
        for weight, bias in self._layers[:-1]:
            hidden = torch.tanh(torch.baddbmm(bias, hidden, weight))
        weight, bias = self._layers[-1]
        return torch.baddbmm(bias, hidden, weight)


def _exact_gps(x: Any, y: Any) -> tuple[Any, Any]:
    """GPyTorch's batch-independent multi-output GP, and its marginal likelihood."""
    import gpytorch
    import torch

    batch = torch.Size([y.shape[0]])

    class ExactGPs(gpytorch.models.ExactGP):
        def __init__(self, likelihood: Any):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
            rbf = gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1], batch_shape=batch)
            self.covar_module = gpytorch.kernels.ScaleKernel(rbf, batch_shape=batch)

        def forward(self, at: Any) -> Any:
            mean, covariance = self.mean_module(at), self.covar_module(at)
            return gpytorch.distributions.MultivariateNormal(mean, covariance)

    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        batch_shape=batch, noise_constraint=gpytorch.constraints.GreaterThan(1e-6)
    )
    model = ExactGPs(likelihood).double()
    return model, gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)


def _means_only() -> ExitStack:
    """Settings under which GPyTorch predicts means at the least cost."""
    import gpytorch
    import torch

    stack = ExitStack()
    stack.enter_context(torch.inference_mode())
    stack.enter_context(gpytorch.settings.skip_posterior_variances())
    return stack
