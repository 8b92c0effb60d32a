"""Decoding many messages at once gives what decoding each gives."""

import numpy as np
import pytest
from logfiles import BAG_CONTROL, BAG_STATE, BAGS, drive, write
from rosbags.rosbag1 import Writer as Writer1
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

import offmap
from offmap.data.formats import bags, read_columns
from offmap.data.formats.layout import Layout

ODD = """
uint8 flag
float64 wide
string word
float32[3] three
bool[] bits
int16 small
geometry_msgs/Quaternion[2] turns
string[] names
float64[] values
int64 last
"""


def store(ros2):
    types = get_typestore(Stores.ROS2_HUMBLE if ros2 else Stores.ROS1_NOETIC)
    types.register(get_types_from_msg(ODD, "test/msg/Odd"))
    return types


def odd(types, rng, word, counts):
    """A message with numbers at awkward places."""
    turn = types.types["geometry_msgs/msg/Quaternion"]
    return types.types["test/msg/Odd"](
        int(rng.integers(256)),
        rng.normal(),
        word,
        rng.normal(size=3).astype(np.float32),
        rng.integers(0, 2, counts[0]).astype(bool),
        int(rng.integers(-999, 999)),
        [turn(*rng.normal(size=4).tolist()) for _ in range(2)],
        ["ab", "ä"][: counts[1]],
        rng.normal(size=counts[2]),
        int(rng.integers(-(2**50), 2**50)),
    )


def serialised(types, ros2, message, little=True):
    if not ros2:
        return bytes(types.serialize_ros1(message, "test/msg/Odd"))
    return bytes(types.serialize_cdr(message, "test/msg/Odd", little_endian=little))


@pytest.mark.parametrize("order", ["ros1", "little", "big"])
@pytest.mark.parametrize("word", ["", "a", "abc", "ünicode"])
@pytest.mark.parametrize("counts", [(0, 0, 0), (1, 2, 3), (5, 1, 0)])
def test_every_field_is_found_at_its_place(order, word, counts):
    ros2 = order != "ros1"
    types, rng = store(ros2), np.random.default_rng(0)
    messages = [odd(types, rng, word, counts) for _ in range(5)]
    data = [serialised(types, ros2, message, order != "big") for message in messages]
    fields = list(bags._fields(messages[0]))
    assert len(fields) == 1 + 1 + 3 + counts[0] + 1 + 8 + counts[2] + 1
    layout = Layout(types.fielddefs, "test/msg/Odd", data[0], ros2)
    get = bags._getter(fields)
    expected = np.array([list(get(message)) for message in messages], dtype=np.float64)
    np.testing.assert_array_equal(layout.cells(data, fields), expected)


@pytest.mark.parametrize("ros2", [False, True])
def test_messages_laid_out_differently_are_noticed(ros2):
    """Also where the bytes are as many: a longer word beside fewer values."""
    types, rng = store(ros2), np.random.default_rng(0)
    first = serialised(types, ros2, odd(types, rng, "12345678", (0, 0, 1)))
    other = serialised(types, ros2, odd(types, rng, "", (0, 0, 2)))
    layout = Layout(types.fielddefs, "test/msg/Odd", first, ros2)
    assert layout.cells([first, first], ["wide", "last"]) is not None
    assert layout.cells([first, other], ["wide", "last"]) is None
    assert layout.cells([first], ["wide", "missing"]) is None
    if not ros2:
        assert len(first) == len(other)


def test_a_bag_whose_messages_change_is_read_as_one_that_does_not(tmp_path):
    types, rng = store(ros2=False), np.random.default_rng(0)
    messages = [odd(types, rng, "x" * (k // 40), (0, 0, 1 + k % 2)) for k in range(100)]
    with Writer1(tmp_path / "log.bag") as bag:
        topic = bag.add_connection("/odd", "test/msg/Odd", typestore=types)
        for k, message in enumerate(messages):
            bag.write(topic, 10**8 * k, serialised(types, False, message))
    (stream,) = read_columns(tmp_path / "log.bag", ["/odd.wide", "/odd.values[0]"])
    assert stream.columns["/odd.wide"].tolist() == [message.wide for message in messages]
    assert stream.columns["/odd.values[0]"].tolist() == [m.values[0] for m in messages]


@pytest.mark.parametrize("kind", BAGS)
def test_ordinary_bags_are_decoded_in_blocks(tmp_path, monkeypatch, kind):
    path = write(tmp_path, kind, drive(rows=50))
    read = {"state": BAG_STATE, "control": BAG_CONTROL, "angles": ["theta"]}
    (at_once,) = offmap.read(path, **read)
    one_by_one, counted = bags._one_by_one, []
    monkeypatch.setattr(
        bags,
        "_one_by_one",
        lambda bag, block, *r: counted.append(len(block)) or one_by_one(bag, block, *r),
    )
    monkeypatch.setattr(bags, "_BLOCK", 20)
    (in_blocks,) = offmap.read(path, **read)
    assert {*counted} == {2}  # only the ends of each block are decoded by themselves
    np.testing.assert_array_equal(at_once.x, in_blocks.x)
    monkeypatch.setattr(bags, "_at_once", lambda *_: None)
    (slowly,) = offmap.read(path, **read)
    np.testing.assert_array_equal(at_once.x, slowly.x)
    np.testing.assert_array_equal(at_once.u, slowly.u)
