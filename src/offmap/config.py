"""All settings of a fit in one record, and the two presets."""

from dataclasses import dataclass, field, replace
from typing import Literal

from offmap.constraint import ConstraintConfig
from offmap.gp import GPConfig, KernelName
from offmap.pseudometric import PseudometricConfig
from offmap.rollout import Integrator

Preset = Literal["default", "paper"]


@dataclass(frozen=True)
class Config:
    """Settings of every stage; change parts with `dataclasses.replace`."""

    sparsify: bool = True
    """Drop the inputs that the pseudometric finds irrelevant: the paper's DGP."""
    project: Literal["none", "learned"] = "learned"
    pseudometric: PseudometricConfig = field(default_factory=PseudometricConfig)
    dynamics: GPConfig = field(default_factory=GPConfig)
    constraint: ConstraintConfig = field(default_factory=ConstraintConfig)
    integrator: Integrator = "euler"

    @staticmethod
    def preset(name: Preset) -> "Config":
        """The named preset: "paper" (the paper's stages and kernels, repaired) or "default"."""
        if name == "paper":
            return Config()
        if name == "default":
            return replace(Config(), dynamics=GPConfig(kernel="rbf+linear"))
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
