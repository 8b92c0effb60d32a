"""Where the numbers of serialised messages lie, so that many are decoded at once.

Messages of one topic mostly have the same length and the same counts of strings and sequences; then
each field lies at the same bytes in all of them.
"""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

_TYPES = {"bool": "u1", "byte": "u1", "char": "u1", "int8": "i1", "uint8": "u1"}
_TYPES |= {"int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4"}
_TYPES |= {"int64": "i8", "uint64": "u8", "float32": "f4", "float64": "f8"}
_HEADER = 4  # bytes before a message of ROS 2, from which alignment is counted
_MOST_ELEMENTS = 64  # of an array whose places are kept


class Layout:
    """Places of the fields in messages that are laid out like the given one.

    Args:
        fields: of each message type: names and descriptions, as rosbags keeps them.
        kind: the message type.
        message: serialised.
        ros2: whether fields are aligned to their size.
    """

    def __init__(self, fields: Any, kind: str, message: bytes, ros2: bool) -> None:
        self._fields, self._message, self._ros2 = fields, message, ros2
        self._order = "<" if not ros2 or message[1] else ">"
        self._position = _HEADER if ros2 else 0
        self._fixed = list(range(self._position))
        """Bytes that must be the same in all messages: how long strings and sequences are."""
        self._places: dict[str, tuple[int, np.dtype]] = {}
        self._message_type(kind, "")

    def cells(
        self, messages: Sequence[bytes], wanted: Sequence[str]
    ) -> Float[np.ndarray, "N fields"] | None:
        """The wanted fields of all messages; None where one is laid out differently."""
        size = len(self._message)
        if any(name not in self._places for name in wanted) or {*map(len, messages)} != {size}:
            return None
        rows = np.frombuffer(b"".join(messages), np.uint8).reshape(len(messages), size)
        if np.any(rows[:, self._fixed] != rows[0, self._fixed]):
            return None
        table = np.empty((len(messages), len(wanted)))
        for column, name in enumerate(wanted):
            first, kind = self._places[name]
            raw = np.ascontiguousarray(rows[:, first : first + kind.itemsize])
            table[:, column] = raw.view(kind)[:, 0]
        return table

    def _message_type(self, kind: str, prefix: str) -> None:
        for name, description in self._fields[kind][1]:
            self._field(description, prefix + name)

    def _field(self, description: Any, name: str) -> None:
        node, detail = description
        if node.name == "NAME":
            self._message_type(detail, f"{name}.")
        elif node.name == "BASE":
            self._base(detail[0], name)
        else:
            element, count = detail[0], detail[1] if node.name == "ARRAY" else self._count()
            self._elements(element, name, count)

    def _elements(self, element: Any, name: str, count: int) -> None:
        kept = min(count, _MOST_ELEMENTS) if element[1][0] in _TYPES else count
        for i in range(kept):
            self._field(element, f"{name}[{i}]")
        if kept < count:
            self._position += (count - kept) * np.dtype(_TYPES[element[1][0]]).itemsize

    def _base(self, kind: str, name: str) -> None:
        if kind == "string":
            count = self._count()
            self._position += count
            return
        number = np.dtype(self._order + _TYPES[kind])
        self._align(number.itemsize)
        self._places[name] = (self._position, number)
        self._position += number.itemsize

    def _count(self) -> int:
        self._align(4)
        (count,) = struct.unpack_from(f"{self._order}I", self._message, self._position)
        self._fixed += range(self._position, self._position + 4)
        self._position += 4
        if count > len(self._message):
            raise ValueError(f"a message of {len(self._message)} bytes cannot hold {count}")
        return int(count)

    def _align(self, size: int) -> None:
        if self._ros2:
            self._position += (_HEADER - self._position) % size
