"""From logged states to derivatives: what the data say about noise, time and likeness of errors.

Logs hold states, seldom derivatives, and differences of states stand in for them in different ways:

- forward: at the first state of a step; exact if a simulator took Euler steps of dt.
- middle: half-way between two states, for motion in continuous time. What is left over, of second
  order in dt, is told by the dynamics themselves (`corrected`).
- smooth: where states are noisy, by local cubics; differences alternate in sign there. Once
  dynamics are learned, only what they leave of the states is smoothed (`refined`).

Which of these the data are is told from how well plain functions and Gaussian processes predict
them. The same tells whether errors of neighbouring samples are alike, as on recorded robots: whole
drives must then be held out where choices are compared.
"""

from offmap.differentiation.correction import corrected, integrator_of, refined
from offmap.differentiation.look import Look, look_at
from offmap.differentiation.stretches import several
from offmap.differentiation.ways import differentiated, like

__all__ = [
    "Look",
    "corrected",
    "differentiated",
    "integrator_of",
    "like",
    "look_at",
    "refined",
    "several",
]
