"""Log files of every format for tests, all holding the same table of columns."""

import gzip
from pathlib import Path

import h5py
import numpy as np
import polars as pl
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import StoragePlugin
from rosbags.rosbag2 import Writer as Writer2
from rosbags.typesys import Stores, get_typestore

TABLES = ("csv", "csv.gz", "parquet", "npz", "h5")
BAGS = ("bag", "ros2", "mcap")
FORMATS = TABLES + BAGS
STATE, CONTROL = ["px", "py", "theta"], ["omega", "v"]
BAG_STATE = {
    "px": "/odom.pose.pose.position.x",
    "py": "/odom.pose.pose.position.y",
    "theta": "/odom.pose.pose.orientation.yaw",
}
BAG_CONTROL = {"omega": "/cmd_vel.angular.z", "v": "/cmd_vel.linear.x"}


def drive(rows=30, dt=0.1, seed=0):
    """Columns of a unicycle's log, its heading wrapped."""
    rng = np.random.default_rng(seed)
    omega, v = rng.uniform(-2, 2, rows), rng.uniform(0.2, 1.5, rows)
    theta = rng.uniform(-3, 3) + dt * np.r_[0, np.cumsum(omega[:-1])]
    px = rng.uniform(-5, 5) + dt * np.r_[0, np.cumsum((v * np.cos(theta))[:-1])]
    py = rng.uniform(-5, 5) + dt * np.r_[0, np.cumsum((v * np.sin(theta))[:-1])]
    theta = np.arctan2(np.sin(theta), np.cos(theta))
    return {"t": dt * np.arange(rows), "px": px, "py": py, "theta": theta, "omega": omega, "v": v}


def names(kind):
    """How `read` is told about the columns in a file of this format."""
    if kind in BAGS:
        return {"state": BAG_STATE, "control": BAG_CONTROL}
    return {"state": STATE, "control": CONTROL}


def write(folder, kind, table, stem="log"):
    """A file of the given format; returns its path."""
    path = Path(folder) / (stem if kind == "ros2" else f"{stem}.{kind}")
    if kind in BAGS:
        return write_bag(path, kind, table)
    if kind == "csv":
        path.write_text(as_csv(table))
    elif kind == "csv.gz":
        with gzip.open(path, "wt") as file:
            file.write(as_csv(table))
    elif kind == "parquet":
        pl.DataFrame(table).write_parquet(path)
    elif kind == "npz":
        np.savez(path, **{name: np.asarray(column) for name, column in table.items()})
    else:
        with h5py.File(path, "w") as file:
            for name, column in table.items():
                values = np.asarray(column)
                file[name] = values.astype("S") if values.dtype.kind in "UO" else values
    return path


def as_csv(table):
    rows = zip(*table.values(), strict=True)
    lines = [",".join(table), *(",".join(str(cell) for cell in row) for row in rows)]
    return "\n".join(lines) + "\n"


def write_bag(path, kind, table, *, control_times=None, skew=0.0):
    """Poses on /odom and commands on /cmd_vel; header stamps are `skew` seconds early."""
    skews = np.broadcast_to(skew, len(table["t"]))
    store = get_typestore(Stores.ROS1_NOETIC if kind == "bag" else Stores.ROS2_HUMBLE)
    messages = [
        ("/odom", when, _odometry(store, kind, when, x, y, heading, early))
        for when, x, y, heading, early in zip(
            *(table[n] for n in ("t", "px", "py", "theta")), skews, strict=True
        )
    ]
    times = table["t"] if control_times is None else control_times
    messages += [
        ("/cmd_vel", when, _twist(store, v, omega))
        for when, v, omega in zip(times, table["v"], table["omega"], strict=True)
    ]
    serialise = store.serialize_ros1 if kind == "bag" else store.serialize_cdr
    with _writer(path, kind) as writer:
        connections = {
            topic: writer.add_connection(topic, name, typestore=store)
            for topic, name in (
                ("/odom", "nav_msgs/msg/Odometry"),
                ("/cmd_vel", "geometry_msgs/msg/Twist"),
            )
        }
        for topic, when, message in sorted(messages, key=lambda m: m[1]):
            data = serialise(message, message.__msgtype__)
            writer.write(connections[topic], _nanoseconds(when), data)
    return next(path.with_suffix("").glob("*.mcap")) if kind == "mcap" else path


def _writer(path, kind):
    if kind == "bag":
        return Writer1(path)
    plugin = StoragePlugin.MCAP if kind == "mcap" else StoragePlugin.SQLITE3
    return Writer2(path.with_suffix(""), version=9, storage_plugin=plugin)


def _nanoseconds(when):
    return 1_700_000_000_000_000_000 + round(float(when) * 1e9)


def _odometry(store, kind, when, x, y, heading, skew):
    types = store.types
    seconds, rest = divmod(_nanoseconds(when - skew), 1_000_000_000)
    stamp = types["builtin_interfaces/msg/Time"](seconds, rest)
    header = types["std_msgs/msg/Header"]
    quaternion = types["geometry_msgs/msg/Quaternion"]
    pose = types["geometry_msgs/msg/Pose"](
        types["geometry_msgs/msg/Point"](float(x), float(y), 0.0),
        quaternion(0.0, 0.0, float(np.sin(heading / 2)), float(np.cos(heading / 2))),
    )
    return types["nav_msgs/msg/Odometry"](
        header(0, stamp, "map") if kind == "bag" else header(stamp, "map"),
        "base",
        types["geometry_msgs/msg/PoseWithCovariance"](pose, np.zeros(36)),
        types["geometry_msgs/msg/TwistWithCovariance"](_twist(store, 0.0, 0.0), np.zeros(36)),
    )


def _twist(store, v, omega):
    vector = store.types["geometry_msgs/msg/Vector3"]
    return store.types["geometry_msgs/msg/Twist"](
        vector(float(v), 0.0, 0.0), vector(0.0, 0.0, float(omega))
    )
