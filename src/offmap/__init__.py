"""Learn robot dynamics that hold where there is no data: sparsity, constraints and projection."""

import jax

# Fitting needs double precision: covariances of noise-free data are singular in single precision.
jax.config.update("jax_enable_x64", True)

from offmap.config import Config  # noqa: E402
from offmap.data import Dataset, Trajectory, read  # noqa: E402
from offmap.fitting import fit  # noqa: E402
from offmap.model import Model, load  # noqa: E402
from offmap.sweeping import sweep  # noqa: E402

__version__ = "0.1.0"
__all__ = ["Config", "Dataset", "Model", "Trajectory", "fit", "load", "read", "sweep"]
