"""Use a model in a loop: model predictive control, and an environment to learn in."""

from typing import TYPE_CHECKING, Any

from offmap.control.mppi import MPPI, Plan

if TYPE_CHECKING:
    from offmap.control.environment import ModelEnv

__all__ = ["MPPI", "ModelEnv", "Plan"]


def __getattr__(name: str) -> Any:
    """Import what needs Gymnasium only when it is asked for."""
    if name != "ModelEnv":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from offmap.control.environment import ModelEnv
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"`ModelEnv` needs Gymnasium; {error.name} is not installed. Install offmap with its "
            f"extra `gym`."
        ) from error
    return ModelEnv
