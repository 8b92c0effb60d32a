"""What every user of control bounds asks of them."""

import numpy as np

from offmap.data.history import history_length
from offmap.model import Model


def check_controls(model: Model | None, low: np.ndarray, high: np.ndarray) -> None:
    """Raise unless low < high for each control, and for each of the model's, if there is one."""
    if low.shape != high.shape or low.ndim != 1 or not np.all(low < high):
        raise ValueError(
            f"Control bounds need low < high for each control; got low={low}, high={high}. "
            f"Give one pair per control."
        )
    names = () if model is None else model.dataset.control_names
    if history_length(names):
        raise ValueError(
            f"Commands are given one at a time; this model also takes past ones ({names}). Fit "
            f"to data without `history`."
        )
    if model is not None and len(low) != len(names):
        raise ValueError(
            f"Control bounds need one pair for each of {names}; got {len(low)}. Check the order."
        )
