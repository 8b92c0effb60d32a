"""The terms that short equations are made of."""

from dataclasses import replace
from itertools import chain, combinations, groupby

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_THREE = 3


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
    pairs: tuple[tuple[int, ...], ...] = eqx.field(static=True, default=())
    """Products of two or three of these functions, by their places, that are offered as well."""
    sums: tuple[tuple[int, int, int], ...] = eqx.field(static=True, default=())
    """Sums θᵢ + θⱼ and differences θᵢ − θⱼ of angles, as (i, j, ±1), whose sine and cosine are
    offered: a wheel that is steered by δ on a robot that heads for θ points along θ + δ."""

    def with_sums(self) -> "Library":
        """The same with all sums and differences of two angles."""
        sums = ((i, j, sign) for i, j in combinations(self.angles, 2) for sign in (1, -1))
        return replace(self, sums=tuple(sums))

    @property
    def thirds(self) -> bool:
        """Whether products of three functions are offered."""
        return any(len(factors) == _THREE for factors in self.pairs)

    @property
    def plain(self) -> tuple[int, ...]:
        """States that are offered as they are."""
        return tuple(i for i in range(len(self.names)) if i not in self.angles)

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " k"]:
        """Value of every function at one state."""
        plain = x[jnp.array(self.plain, dtype=int)]
        trig = x[jnp.array(self.trigonometric, dtype=int)]
        single = [jnp.ones(1), plain, jnp.sin(trig), jnp.cos(trig)]
        if self.sums:
            i, j, sign = jnp.array(self.sums, dtype=int).T
            single += [jnp.sin(x[i] + sign * x[j]), jnp.cos(x[i] + sign * x[j])]
        functions = jnp.concatenate(single)
        if not self.pairs:
            return functions
        most = max(len(factors) for factors in self.pairs)
        places = [(*factors, *(0,) * (most - len(factors))) for factors in self.pairs]
        first, *others = jnp.array(places, dtype=int).T  # the function at place 0 is 1
        product = functions[first]
        for other in others:
            product = product * functions[other]
        return jnp.concatenate([functions, product])

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of every function; the constant has none."""
        angles = [self.names[i] for i in self.trigonometric]
        sums = [self._sum_label(*parts) for parts in self.sums]
        single = ["", *(self.names[i] for i in self.plain)]
        for names in (angles, sums):
            single += [f"{f}({name})" for f in ("sin", "cos") for name in names]
        return (*single, *(_product_label([single[i] for i in p]) for p in self.pairs))

    @property
    def states(self) -> tuple[frozenset[int], ...]:
        """States that every function depends on."""
        single = [(), *((i,) for i in self.plain), *2 * [(i,) for i in self.trigonometric]]
        single += 2 * [(i, j) for i, j, _ in self.sums]
        pairs = (chain.from_iterable(single[i] for i in factors) for factors in self.pairs)
        return tuple(frozenset(states) for states in (*single, *pairs))

    @property
    def straight(self) -> tuple[frozenset[int], ...]:
        """States that every function sees as they are, rather than by a sine or cosine."""
        trig = 2 * (len(self.trigonometric) + len(self.sums))
        single = [(), *((i,) for i in self.plain), *((),) * trig]
        pairs = (chain.from_iterable(single[i] for i in factors) for factors in self.pairs)
        return tuple(frozenset(states) for states in (*single, *pairs))

    def terms(self, most: int = 200) -> Float[np.ndarray, "t k q"]:
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

    def _sum_label(self, i: int, j: int, sign: int) -> str:
        return f"{self.names[i]} {'+' if sign > 0 else '−'} {self.names[j]}"

    def _turned(self, k: int, q: int) -> Float[np.ndarray, "t k q"]:
        """± sin(θ) ẋᵢ + cos(θ) ẋⱼ and cos(θ) ẋᵢ ± sin(θ) ẋⱼ for all i < j, angles and sums."""
        found = [np.zeros((0, k, q))]
        turns = [self.names[i] for i in self.angles]
        for angle in (*turns, *(self._sum_label(*parts) for parts in self.sums)):
            sine, cosine = (self.labels.index(f"{f}({angle})") for f in ("sin", "cos"))
            for i, j in combinations(self.plain, 2):
                for sign in (-1.0, 1.0):
                    pair = np.zeros((2, k, q))
                    pair[0, sine, i], pair[0, cosine, j] = 1.0, sign
                    pair[1, cosine, i], pair[1, sine, j] = 1.0, -sign
                    found.append(pair)
        return np.concatenate(found)


def _product_label(factors: list[str]) -> str:
    counted = ((name, len(list(same))) for name, same in groupby(factors))
    return "·".join(name + {1: "", 2: "²", 3: "³"}[power] for name, power in counted)


class DictionaryConstraint(eqx.Module):
    """Γ(x) = W φ(x): rows that are short sums of library terms."""

    library: Library
    weights: Float[Array, "c k q"]

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, "c q"]:
        """[G(x) g(x)]."""
        return jnp.einsum("ckj,k->cj", self.weights, self.library(x))
