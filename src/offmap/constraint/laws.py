"""Short equations that the data obey: which libraries are searched, and when that is enough."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from offmap.calls import at_each
from offmap.constraint.dictionary import ShortLaws, discover, equation_of, inputs_of
from offmap.constraint.learned import ConstraintConfig, ConstraintFit
from offmap.constraint.library import DictionaryConstraint, Library
from offmap.constraint.normal_space import NormalSpace, spread
from offmap.constraint.second_order import discover_products
from offmap.constraint.steerable import Standard
from offmap.constraint.weights import DictionaryRow
from offmap.data import Samples
from offmap.types import VectorField

_NOISE_FLOORS = (0.0, 0.01, 0.03)
"""Least noise that is tried, one after the other, relative to the size of x'. Where errors are
alike in neighbouring samples they pass for dynamics, and the noise found is too low: no 0 there."""
_EFFECT = 0.5
"""Share of a residual that controls must explain to be said to matter, where errors are alike in
neighbouring samples: they go with controls that are smooth in time, whatever the F-test says."""
_MATTERS = 0.1
"""On recordings, a law that controls bend by less than this share of the motions in it is one yet:
whether to predict by it is decided on held-out data."""
_FIRM = 1.5  # residual, in units of the noise, up to which a law leaves nothing but noise
_AS_WELL = 1.5  # ratio of residuals up to which rows are as well obeyed as others
_PROBES = 200  # samples at which slopes are asked for
_SLOPE = 1e-3  # mean square of a slope, as a share of the largest, that is one


@dataclass(frozen=True)
class _Measured:
    """Samples in which equations are sought."""

    samples: Samples
    noise: Float[np.ndarray, " n"]
    """Standard deviation of the noise in each component of ẋ."""
    groups: Int[np.ndarray, " N"] | None
    """Samples whose errors may be alike; None: none are."""
    standard: Standard

    @property
    def underactuated_by(self) -> int:
        """Rows there are at least, as long as f is a function of u that is not too strange."""
        return self.samples.x.shape[1] - self.samples.u.shape[1]

    def features(self, library: Library) -> Float[np.ndarray, "N k"]:
        """φ at every sample."""
        return np.asarray(at_each(library, self.samples.x))


def fit_dictionary(
    f: VectorField,
    space: NormalSpace,
    samples: Samples,
    primary: int,
    noise: Float[np.ndarray, " n"],
    library: Library,
    *,
    key: PRNGKeyArray,
    config: ConstraintConfig,
    correlated: bool = False,
    off: Float[np.ndarray, " n"] | None = None,
    acting: int | None = None,
) -> ConstraintFit:
    """Search measured motions for short equations between terms of a library.

    Where these leave more open than the controls can move, sums and differences of angles are tried
    too, and products of two terms.

    Args:
        f: the dynamics, asked which states each velocity depends on.
        space: the normal space, kept for its spectrum.
        samples: measured data.
        primary: code of the source whose samples are searched.
        noise: standard deviation of the noise in each component of x', in units of its spread, as
            the dynamics found it. Real errors of derivatives are smooth in time and partly pass
            for dynamics, so if nothing obeys this noise, larger noise is tried.
        library: functions of the state to build equations from.
        key: randomness of the choice of samples.
        config: settings.
        correlated: whether errors of neighbouring samples are alike, as in recordings.
        off: what x' is off by, beside noise, for want of knowing it better: it may depend on the
            control, and is no evidence against a law.
        acting: number of controls that act at once, where past ones are among them; None: all.
    """
    places = np.flatnonzero(samples.source == primary)
    chosen = np.asarray(jax.random.permutation(key, len(places)))[: config.search_samples]
    own = samples.take(places[chosen])
    size = np.sqrt(np.mean(own.xdot**2, axis=0))
    off = np.zeros(len(size)) if off is None else off
    least = np.hypot(noise * spread(own.xdot), off)
    inexact = float(np.max(off / np.where(size > 0, size, 1.0)))
    groups = own.trajectory if correlated else None
    found, rows = library, list[DictionaryRow]()
    for floor in _NOISE_FLOORS[1:] if correlated else _NOISE_FLOORS:
        level = np.maximum(least, floor * size)
        if floor > 0 and not correlated and np.any(level <= least):
            break  # of some velocity, the noise that was found is larger anyway
        standard = Standard(
            effect=_EFFECT if correlated or floor > 0 else 0.0,
            matters=_MATTERS if correlated else inexact,
            acting=acting,
        )
        found, rows = _search(f, library, _Measured(own, level, groups, standard))
        if rows:
            break
    if not rows:
        return ConstraintFit(None, space, space.basis, [], (), ())
    weights = jnp.asarray(np.stack([row.weights for row in rows]))
    return ConstraintFit(
        DictionaryConstraint(found, weights),
        space,
        space.basis,
        [],
        tuple(inputs_of(row, found) for row in rows),
        tuple(equation_of(row, found) for row in rows),
    )


def _search(
    f: VectorField, library: Library, measured: _Measured
) -> tuple[Library, list[DictionaryRow]]:
    """Rows over ever more terms, until they leave no more open than the controls can move."""
    samples, enough = measured.samples, measured.underactuated_by
    features = measured.features(library)
    noisy, groups = (samples.xdot, samples.u, measured.noise), measured.groups
    standard = measured.standard
    short = discover(library, features, *noisy, groups=groups, standard=standard)
    if len(library.angles) > 1:
        wider = library.with_sums()
        found = discover(wider, measured.features(wider), *noisy, groups=groups, standard=standard)
        if len(found.rows) >= len(short.rows):
            library, features, short = wider, measured.features(wider), found
    firm = _firm(short) if groups is None else short
    if len(firm.rows) >= enough:
        return library, short.rows
    depends = _depends(f, samples)
    best = library, short.rows
    for order in (2, 3):
        longer = discover_products(
            library, features, *noisy, firm, depends, groups=groups, standard=standard, order=order
        )
        if _better(longer[1], best[1]):
            best = longer
        if len(best[1]) >= enough and _worst(best[1]) <= _FIRM:
            break
    return best


def _firm(short: ShortLaws) -> ShortLaws:
    """Those that leave nothing but noise: others may be what is small in a longer law."""
    rows = [row for row in short.rows if row.residual <= _FIRM]
    if len(rows) == len(short.rows):
        return short
    about = [np.any(row.weights[:, :-1] != 0, axis=0) for row in rows]
    return ShortLaws(rows, short.spoken_of & np.any([*about, 0 * short.spoken_of], axis=0))


def _better(rows: list[DictionaryRow], others: list[DictionaryRow]) -> bool:
    """Whether there are more rows, or as many that are all clearly better obeyed."""
    if len(rows) != len(others):
        return len(rows) > len(others)
    return _AS_WELL * _worst(rows) < _worst(others)


def _worst(rows: list[DictionaryRow]) -> float:
    return max((row.residual for row in rows), default=0.0)


def _depends(f: VectorField, samples: Samples) -> Bool[np.ndarray, "n n"]:
    """Which states each component of f depends on, by its slopes in units of the sizes."""
    some = samples.take(np.arange(len(samples))[:: max(1, len(samples) // _PROBES)])
    slopes = np.asarray(_slopes(f, jnp.asarray(some.x), jnp.asarray(some.u)))
    change = np.mean(slopes**2, axis=0) * np.mean(samples.x**2, axis=0)
    return change > _SLOPE * change.max(axis=1, keepdims=True)


@eqx.filter_jit
def _slopes(f, x, u):
    return jax.vmap(jax.jacfwd(f))(x, u)
