"""All settings of a fit in one record, and the two presets."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import jax
from jaxtyping import Array

from offmap.constraint import ConstraintConfig
from offmap.gp import GPConfig, KernelName
from offmap.mlp import MLPConfig
from offmap.pseudometric import PseudometricConfig
from offmap.rollout import Integrator

Preset = Literal["default", "paper"]
Representation = Literal["dictionary", "projector", "rows"]
Derivatives = Literal["forward", "middle", "smooth", "auto"]


@dataclass(frozen=True)
class Config:
    """Settings of every stage; change parts with `dataclasses.replace`."""

    sparsify: bool = True
    """Drop the inputs that the pseudometric finds irrelevant: the paper's DGP."""
    project: Literal["none", "learned"] = "learned"
    pseudometric: PseudometricConfig = field(default_factory=PseudometricConfig)
    slope_check: float | None = None
    """Cross-check the pseudometric: inputs along which a GP has this mean squared slope matter."""
    embed_angles: bool = False
    """Show declared angles to the learners as (sin, cos)."""
    dynamics: GPConfig | MLPConfig = field(default_factory=GPConfig)
    kernels: tuple[KernelName, ...] = ("rbf",)
    """Candidates for the dynamics, simplest first; the one that best extrapolates to the edge of
    the data wins, and the simpler of two that do so equally well. Two are candidates in the tangent
    frame of a constraint alone: "quadratic" where it keeps a state, "proportional" where it keeps
    none."""
    discovery_points: int | None = None
    """Structure is discovered on at most this many samples of the primary source (None: on all);
    the model that comes out of it is conditioned on all."""
    constraint: ConstraintConfig = field(default_factory=ConstraintConfig)
    selection_points: int = 400
    """Samples on which candidate kernels are compared."""
    representations: tuple[Representation, ...] = ("rows",)
    """How a constraint may be held: as short equations over a dictionary of terms, which are taken
    wherever they say all there is to say; else by the projector onto the normal space or by the
    paper's rows, whichever is better at the held-out edge."""
    tangent: bool = False
    """Also learn the dynamics in the tangent frame of the constraint."""
    hold_out: Literal["samples", "trajectories", "auto"] = "samples"
    """What is held out at the edge of the data where choices are compared. On recordings, errors of
    neighbouring samples are alike: hold out whole trajectories. "auto" looks whether they are."""
    derivatives: Derivatives = "forward"
    """How differences of logged states stand in for x' where it was not measured: at the first
    state of a step (exact under Euler's steps), half-way, or by local cubics that smooth noise away
    ("auto": as the data ask; see `offmap.differentiation`)."""
    bandwidth: float | None = None
    """Half-width in seconds of the cubics of "smooth"; None: chosen from the data."""
    timing: tuple[int, int] | None = (0, 0)
    """What commands derivatives are due to: those of so many steps ago, averaged over so many steps
    to either side. None: as the data say, where errors of neighbouring samples are alike."""
    integrator: Integrator | Literal["auto"] = "euler"
    """Of rollouts. "auto": Euler's where derivatives belong to such steps, else RK4."""

    def __post_init__(self) -> None:
        if self.project not in ("none", "learned"):
            raise ValueError(
                f'`project` is "none" or "learned"; got {self.project!r}. To give a known Γ, pass '
                f"the function itself to `fit`."
            )
        for name, choices in (
            ("derivatives", get_args(Derivatives)),
            ("hold_out", ("samples", "trajectories", "auto")),
            ("integrator", (*get_args(Integrator), "auto")),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"`{name}` is one of {choices}; got {getattr(self, name)!r}. Choose one."
                )
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise ValueError(
                f"`bandwidth` is a half-width above 0 in seconds, or None; got {self.bandwidth!r}. "
                f"Leave it out to have it chosen from the data."
            )
        if self.timing is not None and (len(self.timing) != 2 or min(self.timing) < 0):
            raise ValueError(
                f"`timing` is a delay and a width in steps, neither below 0, or None; got "
                f"{self.timing!r}. Leave it out to have it found in the data."
            )
        known = get_args(Representation)
        if not self.representations or not set(self.representations) <= set(known):
            raise ValueError(
                f"`representations` are one or more of {known}; got {self.representations}. Choose "
                f"among them."
            )
        if self.representations == ("dictionary",):
            raise ValueError(
                "Not every constraint is a short equation; got representations=('dictionary',). "
                "Add 'rows' or 'projector' for those that are not."
            )

    @staticmethod
    def preset(name: Preset) -> "Config":
        """The named preset: "paper" (the paper's stages and kernels, repaired) or "default"."""
        if name == "paper":
            return Config(dynamics=GPConfig(noise_floor=1e-8))
        if name == "default":
            return Config(
                slope_check=1e-3,
                discovery_points=2000,
                embed_angles=True,
                kernels=(
                    "proportional",
                    "linear",
                    "bilinear",
                    "quadratic",
                    "affine",
                    "rbf+linear",
                    "rbf",
                ),
                representations=("dictionary", "projector", "rows"),
                tangent=True,
                hold_out="auto",
                derivatives="auto",
                timing=None,
                integrator="auto",
            )
        raise ValueError(f'A preset is "default" or "paper"; got {name!r}. Choose one of them.')

    @staticmethod
    def literal(kernel: KernelName = "rbf") -> "Config":
        """The paper's text to the letter, without our repairs; see docs/deviations.md.

        The paper learns the unicycle's constraint with an "rbf" kernel, the quadrotor's with a
        "linear" one and the hardware robot's with a "cosine" one.
        """
        return Config(
            pseudometric=PseudometricConfig.literal(),
            dynamics=GPConfig(noise="shared"),
            constraint=ConstraintConfig(
                rows="rref",
                sample_at="all",
                kernels=(kernel,),
                signs="row",
                pseudometric=PseudometricConfig.literal(),
            ),
        )


class StageKeys(NamedTuple):
    """Randomness of each stage of a fit."""

    pseudometric: Array
    dynamics: Array
    constraint: Array
    tangent: Array


def stage_keys(seed: int) -> StageKeys:
    """Independent randomness for each stage."""
    return StageKeys(*jax.random.split(jax.random.key(seed), 4))
