"""What predicts: dynamics, and the constraint they are held to."""

import equinox as eqx
from jaxtyping import Array, Float

from offmap.data import Samples
from offmap.dynamics import Dynamics, reduced_inputs, targets
from offmap.projection import project, soft_project
from offmap.types import Gamma


class Predictor(eqx.Module):
    """The numbers behind a model: f̂ and, if there is a constraint, Γ and how firmly it holds."""

    dynamics: Dynamics
    gamma: Gamma | None
    softness: Float[Array, " c"] | None = None
    """Standard deviation of what motions leave of each constraint; None: it holds exactly."""

    def __call__(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " n"]:
        """f̂(x, u) projected onto {x' : G(x) x' + g(x) = 0}, or drawn towards it."""
        xdot = self.dynamics(x, u)
        if self.gamma is None or self.dynamics.frame is not None:
            return xdot  # motions in a tangent frame obey the constraint as they are
        if self.softness is None:
            return project(xdot, self.gamma(x))
        variance = self.dynamics.variance(x, u)
        return soft_project(xdot, variance, self.gamma(x), self.softness)[0]

    def conditioned_on(self, samples: Samples) -> "Predictor":
        """What it would be with these samples of the primary source instead of its own."""
        own = self.dynamics
        z, y = reduced_inputs(samples, own.reduction), targets(samples, own.frame)
        dynamics = Dynamics(own.reduction, own.regressor.conditioned(z, y), own.frame)
        return Predictor(dynamics, self.gamma, self.softness)
