"""Compiled calls: of a function at many rows, and of a module that is taken apart only once."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp


@eqx.filter_jit
def at_each(f: Callable[..., Any], *arrays: Any) -> Any:
    """What f gives for every row of the arrays, as one program."""
    return jax.vmap(f)(*arrays)


class Unpacked:
    """A module as the arrays it holds, on their device, and everything else.

    `equinox.filter_jit` looks at every part of a module in each call, which for one point takes
    longer than the prediction itself.
    """

    def __init__(self, module: Any) -> None:
        arrays, rest = eqx.partition(module, eqx.is_array)
        leaves, structure = jax.tree.flatten(arrays)
        self._leaves = [jnp.asarray(leaf) for leaf in leaves]
        self._rest = _Rest(structure, rest)

    def call(self, function: Callable[..., Any], *arrays: Any, **options: Any) -> Any:
        """function(module, *arrays, **options), compiled once for each kind of module and shapes.

        Args:
            function: what to call, always the same object.
            arrays: traced.
            options: compiled in; hashable.
        """
        key = tuple(options.items())
        return _call(function, self._rest, key, self._leaves, *arrays)


class _Rest:
    """What a module has besides arrays, with a hash that is computed once."""

    def __init__(self, structure: Any, rest: Any) -> None:
        self.structure, self.rest = structure, rest
        leaves, shape = jax.tree.flatten(rest)
        self._key = (structure, tuple(leaves), shape)
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, _Rest) and self._key == other._key)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _call(function, rest, options, leaves, *arrays):
    module = eqx.combine(jax.tree.unflatten(rest.structure, leaves), rest.rest)
    return function(module, *arrays, **dict(options))
