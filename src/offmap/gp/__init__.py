"""Independent Gaussian processes: kernels, exact inference, one noise level per data source."""

from offmap.gp.doubt import doubtful
from offmap.gp.draws import FunctionDraws, draw_functions, shared_noise
from offmap.gp.expansion import AbstractGPs
from offmap.gp.fit import GPConfig, complete, fit_gps, fold_in
from offmap.gp.induced import InducedGPs
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
from offmap.gp.misfit import Strays, strayed
from offmap.gp.posterior import IndependentGPs
from offmap.gp.selection import choose_kernel, edge_errors
from offmap.gp.straight import compact, with_variances

__all__ = [
    "RBF",
    "AbstractGPs",
    "AbstractKernel",
    "Cosine",
    "FunctionDraws",
    "GPConfig",
    "IndependentGPs",
    "InducedGPs",
    "KernelName",
    "Linear",
    "Product",
    "Strays",
    "Sum",
    "choose_kernel",
    "compact",
    "complete",
    "doubtful",
    "draw_functions",
    "edge_errors",
    "fit_gps",
    "fold_in",
    "kernel_named",
    "log_marginal_likelihood",
    "shared_noise",
    "strayed",
    "with_variances",
]
