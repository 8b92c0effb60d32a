"""Which motions are impossible: normal spaces from derivative stacks, and a learned Γ̂(x)."""

from offmap.constraint.basis import align_signs, rref, unit_rows
from offmap.constraint.choice import choose_representation
from offmap.constraint.equations import Equation, readable_equations
from offmap.constraint.laws import fit_dictionary
from offmap.constraint.learned import (
    ConstraintConfig,
    ConstraintFit,
    LearnedConstraint,
    find_normal_space,
    fit_constraint,
    fit_rows,
)
from offmap.constraint.library import DictionaryConstraint, Library
from offmap.constraint.normal_space import (
    NormalSpace,
    count_constraints,
    derivative_stack,
    normal_space,
    spread_actions,
)
from offmap.constraint.projector import ProjectorConstraint, fit_projector

__all__ = [
    "ConstraintConfig",
    "ConstraintFit",
    "DictionaryConstraint",
    "Equation",
    "LearnedConstraint",
    "Library",
    "NormalSpace",
    "ProjectorConstraint",
    "align_signs",
    "choose_representation",
    "count_constraints",
    "derivative_stack",
    "find_normal_space",
    "fit_constraint",
    "fit_dictionary",
    "fit_projector",
    "fit_rows",
    "normal_space",
    "readable_equations",
    "rref",
    "spread_actions",
    "unit_rows",
]
