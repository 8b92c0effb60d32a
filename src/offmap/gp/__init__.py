"""Independent Gaussian processes: kernels, exact inference, one noise level per data source."""

from offmap.gp.expansion import AbstractGPs
from offmap.gp.fit import GPConfig, complete, fit_gps, fold_in
from offmap.gp.induced import InducedGPs, compact
from offmap.gp.kernels import (
    RBF,
    AbstractKernel,
    Cosine,
    KernelName,
    Linear,
    Product,
    Sum,
    kernel_named,
)
from offmap.gp.likelihood import log_marginal_likelihood
from offmap.gp.posterior import IndependentGPs
from offmap.gp.selection import choose_kernel, edge_errors

__all__ = [
    "RBF",
    "AbstractGPs",
    "AbstractKernel",
    "Cosine",
    "GPConfig",
    "IndependentGPs",
    "InducedGPs",
    "KernelName",
    "Linear",
    "Product",
    "Sum",
    "choose_kernel",
    "compact",
    "complete",
    "edge_errors",
    "fit_gps",
    "fold_in",
    "kernel_named",
    "log_marginal_likelihood",
]
