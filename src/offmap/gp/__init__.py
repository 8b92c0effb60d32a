"""Independent Gaussian processes: kernels, exact inference, one noise level per data source."""

from offmap.gp.fit import GPConfig, fit_gps, fold_in
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
    "AbstractKernel",
    "Cosine",
    "GPConfig",
    "IndependentGPs",
    "KernelName",
    "Linear",
    "Product",
    "Sum",
    "choose_kernel",
    "edge_errors",
    "fit_gps",
    "fold_in",
    "kernel_named",
    "log_marginal_likelihood",
]
