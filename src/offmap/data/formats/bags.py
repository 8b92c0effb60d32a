"""ROS 1 bags, ROS 2 bags and MCAP, through rosbags: no ROS installation is needed.

A column is a field of a topic's messages, `/odom.pose.pose.position.x`; elements of arrays are
`/joint_states.position[0]`.
"""

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from offmap.data.formats.topic import Topic, optional

_ELEMENT = re.compile(r"(\w+)\[(\d+)\]")
_MOST_ELEMENTS = 64  # of an array that are listed: joints, but not the pixels of an image
STAMP = "header.stamp"


def column_names(path: Path) -> tuple[str, ...]:
    """Numeric fields of every topic, as its first message has them."""
    names: list[str] = []
    with _opened(path) as bag:
        if not bag.message_count:
            raise ValueError("it holds no messages; record again, or leave it out")
        for topic, messages in _topics(bag).items():
            for _, message in messages():
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
            topic: _table(topic, wanted, topics[topic](), clock == STAMP)
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
    topic: str, wanted: list[str], messages: Any, stamped: bool
) -> tuple[Int[np.ndarray, " N"], Float[np.ndarray, "N fields"]]:
    """Nanoseconds and the wanted fields of every message of a topic."""
    get = _getter(wanted)
    stamps, cells = array("q"), array("d")  # a hundredth of what the messages take
    for stamp, message in messages:
        try:
            stamps.append(_header_stamp(message) if stamped else stamp)
            cells.extend(get(message))
        except (AttributeError, IndexError, TypeError) as error:
            raise ValueError(
                f"message {len(stamps) - 1} of {topic} lacks one of {', '.join(wanted[:4])}"
                f"{' or header.stamp' if stamped else ''} ({error})"
            ) from None
    return np.array(stamps, dtype=np.int64), np.array(cells).reshape(-1, len(wanted))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    reader = optional("rosbags.highlevel", "bags").AnyReader
    typesys = optional("rosbags.typesys", "bags")
    # Bags of older ROS 2 versions do not say how their messages are laid out.
    fallback = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
    with reader([path], default_typestore=fallback) as bag:
        yield bag


def _topics(bag: Any) -> dict[str, Callable[[], Iterator[tuple[int, Any]]]]:
    """Each topic's messages, decoded one at a time."""

    def messages(connections: list[Any]) -> Iterator[tuple[int, Any]]:
        for connection, stamp, data in bag.messages(connections):
            yield stamp, bag.deserialize(data, connection.msgtype)

    by_topic: dict[str, list[Any]] = {}
    for connection in bag.connections:
        if connection.msgtype in bag.typestore.fielddefs:
            by_topic.setdefault(connection.topic, []).append(connection)
    return {topic: lambda c=c: messages(c) for topic, c in by_topic.items()}  # type: ignore[misc]


def _fields(message: Any, prefix: str = "") -> Iterator[str]:
    parts = getattr(message, "__dataclass_fields__", {})
    for name in parts:
        value = getattr(message, name)
        if name.startswith("__"):
            continue
        if isinstance(value, (bool, int, float, np.number)):
            yield prefix + name
        elif isinstance(value, (np.ndarray, list, tuple)) and len(value) <= _MOST_ELEMENTS:
            for i, element in enumerate(value):
                if isinstance(element, (bool, int, float, np.number)):
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


def _header_stamp(message: Any) -> int:
    stamp = message.header.stamp
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)
