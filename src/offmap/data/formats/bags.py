"""ROS 1 bags, ROS 2 bags and MCAP, through rosbags: no ROS installation is needed.

A column is a field of a topic's messages, `/odom.pose.pose.position.x`; elements of arrays are
`/joint_states.position[0]`.
"""

import re
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from offmap.data.formats.layout import Layout
from offmap.data.formats.topic import Topic, optional

_ELEMENT = re.compile(r"(\w+)\[(\d+)\]")
_MOST_ELEMENTS = 64  # of an array that are listed: joints, but not the pixels of an image
_BLOCK = 4096  # messages that are decoded at once
_NUMBERS = (bool, int, float, np.number, np.bool_)
STAMP = "header.stamp"
_STAMPS = ["header.stamp.sec", "header.stamp.nanosec"]


def column_names(path: Path) -> tuple[str, ...]:
    """Numeric fields of every topic, as its first message has them."""
    names: list[str] = []
    with _opened(path) as bag:
        if not bag.message_count:
            raise ValueError("it holds no messages; record again, or leave it out")
        for topic, connections in _topics(bag).items():
            for connection, _, data in bag.messages(connections):
                message = bag.deserialize(data, connection.msgtype)
                names += [f"{topic}.{field}" for field in _fields(message)]
                break
    return tuple(names)


def read_columns(path: Path, names: Sequence[str], clock: str = "t") -> list[Topic]:
    """One stream per topic; time is when a message was recorded, or its header's stamp."""
    fields: dict[str, list[str]] = {}
    for name in names:
        topic, _, field = name.partition(".")
        fields.setdefault(topic, []).append(field)
    with _opened(path) as bag:
        topics = _topics(bag)
        found = {
            topic: _table(bag, topics[topic], wanted, clock == STAMP)
            for topic, wanted in fields.items()
        }
    # Counted from the first message: seconds since 1970 have few digits left behind the point.
    origin = min((int(stamps.min()) for stamps, _ in found.values() if len(stamps)), default=0)
    return [
        Topic(
            topic,
            {f"{topic}.{field}": table[:, i].copy() for i, field in enumerate(fields[topic])},
            (stamps - origin) * 1e-9,
        )
        for topic, (stamps, table) in found.items()
    ]


def _table(
    bag: Any, connections: list[Any], wanted: list[str], stamped: bool
) -> tuple[Int[np.ndarray, " N"], Float[np.ndarray, "N fields"]]:
    """Nanoseconds and the wanted fields of every message of a topic."""
    fields = [*wanted, *(_STAMPS if stamped else ())]
    stamps, tables = [np.zeros(0, np.int64)], [np.zeros((0, len(fields)))]
    for block in _blocks(bag, connections):
        table = _at_once(bag, block, fields)
        if table is None:
            before = sum(map(len, tables))
            table = _one_by_one(bag, block, fields, before)
        tables.append(table)
        stamps.append(np.array([stamp for _, stamp, _ in block], dtype=np.int64))
    table = np.concatenate(tables)
    if not stamped:
        return np.concatenate(stamps), table
    seconds, rest = table[:, -2:].astype(np.int64).T
    return seconds * 1_000_000_000 + rest, table[:, :-2]


def _blocks(bag: Any, connections: list[Any]) -> Iterator[list[tuple[Any, int, bytes]]]:
    """Messages as they are stored, some thousand at a time, so that memory stays bounded."""
    messages = bag.messages(connections)
    while block := list(islice(messages, _BLOCK)):
        yield block


def _at_once(bag: Any, block: list[Any], fields: list[str]) -> np.ndarray | None:
    """All messages of a block, if they are laid out alike; the ends are checked one by one."""
    if len({connection.msgtype for connection, _, _ in block}) > 1:
        return None
    connection, _, first = block[0]
    messages = [bytes(data) for _, _, data in block]
    try:
        layout = Layout(bag.typestore.fielddefs, connection.msgtype, bytes(first), bag.is2)
        table = layout.cells(messages, fields)
    except (KeyError, IndexError, ValueError, struct.error):  # a type or message it does not know
        return None
    ends = [block[0], block[-1]]
    if table is None or not np.array_equal(
        table[[0, -1]], _one_by_one(bag, ends, fields, 0), equal_nan=True
    ):
        return None
    return table


def _one_by_one(
    bag: Any, block: list[Any], fields: list[str], before: int
) -> Float[np.ndarray, "N fields"]:
    """The fields of each message, whatever it is like."""
    get = _getter(fields)
    cells = array("d")
    for count, (connection, _, data) in enumerate(block):
        try:
            cells.extend(get(bag.deserialize(data, connection.msgtype)))
        except (AttributeError, IndexError, TypeError) as error:
            raise ValueError(
                f"message {before + count} of {connection.topic} lacks one of "
                f"{', '.join(fields[:4])}{' or header.stamp' * (fields[-2:] == _STAMPS)} ({error})"
            ) from None
    return np.array(cells).reshape(-1, len(fields))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    reader = optional("rosbags.highlevel", "bags").AnyReader
    typesys = optional("rosbags.typesys", "bags")
    # Bags of older ROS 2 versions do not say how their messages are laid out.
    fallback = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
    with reader([path], default_typestore=fallback) as bag:
        yield bag


def _topics(bag: Any) -> dict[str, list[Any]]:
    """Connections by topic, of messages whose type is known."""
    topics: dict[str, list[Any]] = {}
    for connection in bag.connections:
        if connection.msgtype in bag.typestore.fielddefs:
            topics.setdefault(connection.topic, []).append(connection)
    return topics


def _fields(message: Any, prefix: str = "") -> Iterator[str]:
    parts = getattr(message, "__dataclass_fields__", {})
    for name in parts:
        value = getattr(message, name)
        if name.startswith("__"):
            continue
        if isinstance(value, _NUMBERS):
            yield prefix + name
        elif isinstance(value, (np.ndarray, list, tuple)) and len(value) <= _MOST_ELEMENTS:
            for i, element in enumerate(value):
                if isinstance(element, _NUMBERS):
                    yield f"{prefix}{name}[{i}]"
                else:
                    yield from _fields(element, f"{prefix}{name}[{i}].")
        else:
            yield from _fields(value, f"{prefix}{name}.")


def _getter(fields: list[str]) -> Callable[[Any], Iterable[float]]:
    """How to find fields in a message."""
    if len(fields) > 1 and not any("[" in field for field in fields):
        return attrgetter(*fields)
    getters = [_element(field) if "[" in field else attrgetter(field) for field in fields]
    return lambda message: [get(message) for get in getters]


def _element(field: str) -> Callable[[Any], float]:
    """How to find a field that is, or lies in, an element of an array."""
    path = [_ELEMENT.fullmatch(part) or part for part in field.split(".")]

    def get(message: Any) -> float:
        for part in path:
            message = getattr(message, part if isinstance(part, str) else part[1])
            message = message if isinstance(part, str) else message[int(part[2])]
        return float(message)

    return get
