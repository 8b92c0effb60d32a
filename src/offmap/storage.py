"""Model files: records and arrays in one safetensors file, with their structure as JSON beside.

Loading builds only the classes listed here, by name, from plain values and arrays: nothing in a
file is ever executed. A new record, kernel or constraint takes its place in `_CLASSES`.
"""

import hashlib
import json
import os
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from offmap.axes import TurnedAxes
from offmap.config import Config
from offmap.constraint import (
    ConstraintConfig,
    ConstraintFit,
    DictionaryConstraint,
    Equation,
    LearnedConstraint,
    Library,
    NormalSpace,
    ProjectorConstraint,
)
from offmap.constraint.learned import Row
from offmap.data import Dataset, Trajectory
from offmap.dynamics import Dynamics
from offmap.features import Features
from offmap.gp import GPConfig, IndependentGPs, InducedGPs
from offmap.gp.expansion import Scaling
from offmap.gp.induced import Knowledge
from offmap.gp.kernels import RBF, ControlAffine, Cosine, Linear, Product, Sum
from offmap.gp.straight import StraightMean
from offmap.mlp import MLPConfig, MLPEnsemble
from offmap.pattern import Pattern
from offmap.pseudometric import Pseudometric, PseudometricConfig, Reduction
from offmap.summary import Choices
from offmap.tangent import Guide, TangentFrame
from offmap.turning import Turning

FORMAT = "offmap model"
VERSION = 2
"""Raised when files written by a new version can no longer be read by an old one."""

_CLASSES: dict[str, type] = {}


def register(*classes: type) -> None:
    """Let files hold instances of these dataclasses or modules, under the name of the class."""
    for cls in classes:
        if not is_dataclass(cls) or _CLASSES.setdefault(cls.__name__, cls) is not cls:
            raise ValueError(
                f"A stored class is a dataclass with a name of its own; got {cls!r}. Rename it."
            )


register(Config, ConstraintConfig, GPConfig, PseudometricConfig, Choices, Dataset, Trajectory)
register(RBF, Linear, Cosine, ControlAffine, Sum, Product, Scaling, IndependentGPs)
register(InducedGPs, Knowledge, StraightMean)
register(MLPConfig, MLPEnsemble)
register(Features, Reduction, Pseudometric, Dynamics, TangentFrame, Pattern, Guide, Turning)
register(TurnedAxes)
register(ConstraintFit, NormalSpace, Equation, Row, LearnedConstraint)
register(DictionaryConstraint, Library, ProjectorConstraint)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place if the block succeeds, and else goes."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"A file is written into a folder that exists; got {target}. Make {target.parent}."
        )
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write(path: str | os.PathLike[str], record: Any) -> None:
    """Write a registered record and all it holds to one file, whole or not at all."""
    encoder = _Encoder()
    root = encoder.encode(record, type(record).__name__)
    structure = {"root": root, "objects": encoder.objects}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "sha256": _digest(structure, encoder.tensors),
        "structure": structure,
    }
    with replacing(path) as temporary:
        temporary.touch()
        usual = temporary.stat().st_mode  # safetensors hides files from all other users
        # One entry: safetensors writes several in no fixed order, and equal models in equal files
        # are easier to compare.
        save_file(encoder.tensors, temporary, {"offmap": _json(header)})
        temporary.chmod(usual)


def read(path: str | os.PathLike[str]) -> Any:
    """The record that `write` put into a file, down to the last bit."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"A model file must exist; got {path}. Check the path.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = _header(path, file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a whole offmap model file ({error}). Give a file written by "
            f"`model.save`, and copy it again if it was cut short."
        ) from None
    structure = header.get("structure")
    if header.get("sha256") != _digest(structure, tensors):
        raise ValueError(
            f"{path} is damaged: its contents do not match their checksum. Copy it again."
        )
    try:
        return _decode_all(structure, tensors)
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError, ValueError) as error:
        raise ValueError(
            f"{path} does not hold what this version of offmap expects "
            f"({type(error).__name__}: {error}). Update offmap, or save the model again."
        ) from error


def _header(path: Any, metadata: dict[str, str]) -> dict[str, Any]:
    """The JSON of a file in a format and version that we can read."""
    try:
        header = json.loads(metadata["offmap"])
        kind, version = header["format"], header["version"]
    except (KeyError, TypeError, RecursionError, ValueError):
        kind, version = None, 0
    if kind != FORMAT:
        raise ValueError(
            f"{path} is a safetensors file, but not an offmap model. Give a file written by "
            f"`model.save`."
        )
    if type(version) is not int or version < 1:
        raise ValueError(f"{path} is damaged: its version is {version!r:.20}. Copy it again.")
    if version > VERSION:
        raise ValueError(
            f"{path} was written by a newer offmap (format {version}; this one reads up to "
            f"{VERSION}). Update offmap."
        )
    return header


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _digest(structure: Any, tensors: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(_json(structure).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tensors[name].shape}".encode())
        digest.update(tensors[name].reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


class _Encoder:
    """Turns values into JSON; arrays and records are written once however often they are met.

    What was one object stays one object: a model's `update` asks whether its dynamics are shared.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, np.ndarray] = {}
        self.objects: list[dict[str, Any]] = []
        self._seen: dict[int, dict[str, Any]] = {}
        self._alive: list[Any] = []  # so that no id is used twice

    def encode(self, value: Any, where: str) -> Any:
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return float(value) if np.isfinite(value) else {"float": repr(float(value))}
        if id(value) not in self._seen:
            self._seen[id(value)] = self._encode_object(value, where)
            self._alive.append(value)
        return self._seen[id(value)]

    def _encode_object(self, value: Any, where: str) -> dict[str, Any]:
        if isinstance(value, (np.ndarray, jax.Array)):
            return self._encode_array(value, where)
        if isinstance(value, (tuple, list)):
            items = [self.encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
            return {type(value).__name__: items}
        if isinstance(value, dict):
            return {
                "dict": [
                    [self.encode(k, where), self.encode(v, f"{where}[{k!r}]")]
                    for k, v in value.items()
                ]
            }
        name = type(value).__name__
        if is_dataclass(value) and _CLASSES.get(name) is type(value):
            parts = {
                field.name: self.encode(getattr(value, field.name), f"{where}.{field.name}")
                for field in fields(value)
            }
            self.objects.append({"class": name, "fields": parts})
            return {"object": len(self.objects) - 1}
        raise ValueError(_not_storable(value, where))

    def _encode_array(self, value: np.ndarray | jax.Array, where: str) -> dict[str, Any]:
        array = np.asarray(value, order="C")
        if array.dtype.kind not in "biuf":
            raise ValueError(f"A file holds arrays of numbers; {where} has dtype {array.dtype}.")
        name = f"{len(self.tensors):04d} {where}"
        self.tensors[name] = array
        return {"jax" if isinstance(value, jax.Array) else "numpy": name}


def _not_storable(value: Any, where: str) -> str:
    if callable(value) and "gamma" in where:
        return (
            f"A file holds no code, and {where} is a function of yours: {value!r:.60}. Save "
            f"`model.with_constraint(None)`, and after loading give the constraint again with "
            f"`offmap.load(path).with_constraint(gamma)`."
        )
    return (
        f"A file holds numbers, text and registered records; {where} is a "
        f"{type(value).__qualname__}. Register its class in offmap/storage.py."
    )


def _decode_all(structure: Any, tensors: dict[str, np.ndarray]) -> Any:
    arrays: dict[tuple[str, str], Any] = {}
    objects: list[Any] = []

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "object":
            return objects[content]  # only those built before it: there are no cycles
        if kind in ("jax", "numpy"):
            if (kind, content) not in arrays:
                array = tensors[content]
                arrays[kind, content] = jnp.asarray(array) if kind == "jax" else array
            return arrays[kind, content]
        if kind == "float":
            return float(content)
        if kind == "dict":
            return {decode(key): decode(item) for key, item in content}
        items = [decode(item) for item in content]
        return {"tuple": tuple, "list": list}[kind](items)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about the data: given when they were read
        for entry in structure["objects"]:
            parts = {name: decode(part) for name, part in entry["fields"].items()}
            objects.append(_build(entry["class"], parts))
    return decode(structure["root"])


def _build(name: str, parts: dict[str, Any]) -> Any:
    """An instance of a registered class; fields that younger versions added take their default."""
    if name not in _CLASSES:
        raise ValueError(f"there is no class {name!r}")
    cls = _CLASSES[name]
    for field in fields(cls):
        if field.name not in parts:
            parts[field.name] = _default(name, field)
    unknown = parts.keys() - {field.name for field in fields(cls)}
    if unknown:
        raise ValueError(f"{name} has no {', '.join(sorted(unknown))}")
    if not issubclass(cls, eqx.Module):
        return cls(**parts)
    # As JAX itself rebuilds a module: its own __init__ may take other arguments than its fields.
    module = object.__new__(cls)
    for key, part in parts.items():
        object.__setattr__(module, key, part)
    return module


def _default(name: str, field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    if field.default_factory is not MISSING:
        return field.default_factory()
    raise ValueError(f"{name} needs {field.name!r}")
