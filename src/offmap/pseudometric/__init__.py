"""Which inputs matter: a pseudometric learned by contrast (paper IV-A-1, IV-A-2, IV-B-3)."""

from offmap.pseudometric.fit import PseudometricConfig, fit_pseudometric, fit_pseudometrics
from offmap.pseudometric.learned import Pseudometric, Reduction, retained_inputs
from offmap.pseudometric.loss import info_nce
from offmap.pseudometric.pairs import positive_pairs

__all__ = [
    "Pseudometric",
    "PseudometricConfig",
    "Reduction",
    "fit_pseudometric",
    "fit_pseudometrics",
    "info_nce",
    "positive_pairs",
    "retained_inputs",
]
