"""The terms that short equations are made of."""

from itertools import combinations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def products(a: Float[np.ndarray, "N a"], b: Float[np.ndarray, "N b"]) -> Float[np.ndarray, "N ab"]:
    """Every column of a times every column of b."""
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)


class Library(eqx.Module):
    """The functions φ(x): 1, each state, sines and cosines; an angle by its sine and cosine alone.

    An angle and the same angle after a full turn are one state: no constraint tells them apart.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    trigonometric: tuple[int, ...] = eqx.field(static=True)
    """States whose sine and cosine are offered: the declared angles, or all if none is declared."""
    angles: tuple[int, ...] = eqx.field(static=True, default=())
    """States that are known to be angles."""
    pairs: tuple[tuple[int, int], ...] = eqx.field(static=True, default=())
    """Products of two of these functions, by their places, that are offered as well."""

    @property
    def plain(self) -> tuple[int, ...]:
        """States that are offered as they are."""
        return tuple(i for i in range(len(self.names)) if i not in self.angles)

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " k"]:
        """Value of every function at one state."""
        plain = x[jnp.array(self.plain, dtype=int)]
        trig = x[jnp.array(self.trigonometric, dtype=int)]
        single = jnp.concatenate([jnp.ones(1), plain, jnp.sin(trig), jnp.cos(trig)])
        if not self.pairs:
            return single
        first, second = jnp.array(self.pairs, dtype=int).T
        return jnp.concatenate([single, single[first] * single[second]])

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of every function; the constant has none."""
        angles = [self.names[i] for i in self.trigonometric]
        single = (
            "",
            *(self.names[i] for i in self.plain),
            *(f"sin({name})" for name in angles),
            *(f"cos({name})" for name in angles),
        )
        pairs = (f"{single[i]}²" if i == j else f"{single[i]}·{single[j]}" for i, j in self.pairs)
        return (*single, *pairs)

    @property
    def states(self) -> tuple[frozenset[int], ...]:
        """States that every function depends on."""
        single = [(), *((i,) for i in self.plain), *2 * [(i,) for i in self.trigonometric]]
        pairs = ((*single[i], *single[j]) for i, j in self.pairs)
        return tuple(frozenset(states) for states in (*single, *pairs))

    @property
    def straight(self) -> tuple[frozenset[int], ...]:
        """States that every function sees as they are, rather than by a sine or cosine."""
        trig = 2 * len(self.trigonometric)
        single = [(), *((i,) for i in self.plain), *((),) * trig]
        pairs = ((*single[i], *single[j]) for i, j in self.pairs)
        return tuple(frozenset(states) for states in (*single, *pairs))

    def terms(self, most: int = 150) -> Float[np.ndarray, "t k q"]:
        """What an equation may be a sum of, as weights over (function, entry of [ẋ; 1]).

        Every product of a function and an entry; and, if no more than `most` terms come out, two
        components of ẋ as seen from a frame that turns with an angle, which are one term each:
        what a robot cannot do is said in its own frame, and has no free weight between sine and
        cosine there.
        """
        k, q = len(self.labels), len(self.names) + 1
        products = np.eye(k * q).reshape(-1, k, q)
        turned = self._turned(k, q)
        if len(products) + len(turned) > most:
            return products
        return np.concatenate([products, turned])

    def _turned(self, k: int, q: int) -> Float[np.ndarray, "t k q"]:
        """± sin(θ) ẋᵢ + cos(θ) ẋⱼ and cos(θ) ẋᵢ ± sin(θ) ẋⱼ for all i < j and all angles."""
        found = [np.zeros((0, k, q))]
        for angle in self.angles:
            sine, cosine = (self.labels.index(f"{f}({self.names[angle]})") for f in ("sin", "cos"))
            for i, j in combinations(self.plain, 2):
                for sign in (-1.0, 1.0):
                    pair = np.zeros((2, k, q))
                    pair[0, sine, i], pair[0, cosine, j] = 1.0, sign
                    pair[1, cosine, i], pair[1, sine, j] = 1.0, -sign
                    found.append(pair)
        return np.concatenate(found)


class DictionaryConstraint(eqx.Module):
    """Γ(x) = W φ(x): rows that are short sums of library terms."""

    library: Library
    weights: Float[Array, "c k q"]

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, "c q"]:
        """[G(x) g(x)]."""
        return jnp.einsum("ckj,k->cj", self.weights, self.library(x))
