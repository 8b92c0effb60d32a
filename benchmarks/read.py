"""How fast, and in how much memory, logs are read: a file of each format, written for the purpose.

    python benchmarks/read.py                       # 100 MB of each format, in a temporary folder
    python benchmarks/read.py --mb 20 --formats csv mcap --out read.json

Prints seconds of the clock and of the processor, and the memory that reading added to what
importing takes. Each file is read in a process of its own. Bags hold odometry and commands.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

FORMATS = ("csv", "csv.gz", "parquet", "npz", "h5", "bag", "ros2", "mcap")
BAGS = ("bag", "ros2", "mcap")
BYTES_OF_A_ROW = {"csv": 105, "csv.gz": 105, "parquet": 40, "npz": 48, "h5": 48}
BYTES_OF_MESSAGES = 850  # one of odometry and one command
TABLE = {"state": ["px", "py", "theta"], "control": ["omega", "v"]}
TOPICS = {
    "state": {
        "px": "/odom.pose.pose.position.x",
        "py": "/odom.pose.pose.position.y",
        "theta": "/odom.pose.pose.orientation.yaw",
    },
    "control": {"omega": "/cmd_vel.angular.z", "v": "/cmd_vel.linear.x"},
}


def drive(rows: int, dt: float = 0.01) -> dict[str, np.ndarray]:
    """Columns of a unicycle's log."""
    rng = np.random.default_rng(0)
    omega, v = rng.uniform(-2, 2, rows), rng.uniform(0.2, 1.5, rows)
    theta = dt * np.r_[0, np.cumsum(omega[:-1])]
    px, py = (dt * np.r_[0, np.cumsum((v * f(theta))[:-1])] for f in (np.cos, np.sin))
    theta = np.arctan2(np.sin(theta), np.cos(theta))
    return {"t": dt * np.arange(rows), "px": px, "py": py, "theta": theta, "omega": omega, "v": v}


def write(folder: Path, kind: str, megabytes: float) -> Path:
    """A log of about this size (before compression, for .csv.gz)."""
    path = folder / ("log" if kind == "ros2" else f"log.{kind}")
    if kind in BAGS:
        return write_bag(path, kind, drive(int(1e6 * megabytes / BYTES_OF_MESSAGES)))
    table = drive(int(1e6 * megabytes / BYTES_OF_A_ROW[kind]))
    if kind == "npz":
        np.savez(path, **table)
    elif kind == "h5":
        import h5py

        with h5py.File(path, "w") as file:
            for name, column in table.items():
                file[name] = column
    else:
        write_table(path, kind, table)
    return path


def write_table(path: Path, kind: str, table: dict[str, np.ndarray]) -> None:
    """CSV, perhaps packed, or Parquet."""
    import gzip
    import shutil

    import polars as pl

    frame = pl.DataFrame(table)
    if kind == "parquet":
        frame.write_parquet(path)
        return
    plain = path.with_name("plain.csv")
    frame.write_csv(plain)
    if kind == "csv":
        plain.rename(path)
        return
    with plain.open("rb") as source, gzip.open(path, "wb", compresslevel=1) as target:
        shutil.copyfileobj(source, target)
    plain.unlink()


def write_bag(path: Path, kind: str, table: dict[str, np.ndarray]) -> Path:
    """Odometry and commands, a hundred times a second."""
    from rosbags.rosbag1 import Writer as Writer1
    from rosbags.rosbag2 import StoragePlugin
    from rosbags.rosbag2 import Writer as Writer2
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC if kind == "bag" else Stores.ROS2_HUMBLE)
    serialise = store.serialize_ros1 if kind == "bag" else store.serialize_cdr
    plugin = StoragePlugin.MCAP if kind == "mcap" else StoragePlugin.SQLITE3
    target = path if kind == "bag" else path.with_suffix("")
    writer = Writer1(path) if kind == "bag" else Writer2(target, version=9, storage_plugin=plugin)
    kinds = {"/odom": "nav_msgs/msg/Odometry", "/cmd_vel": "geometry_msgs/msg/Twist"}
    with writer:
        topics = {t: writer.add_connection(t, k, typestore=store) for t, k in kinds.items()}
        for stamp, topic, message in messages(store, table, kind == "bag"):
            writer.write(topics[topic], stamp, serialise(message, message.__msgtype__))
    return next(target.glob("*.mcap")) if kind == "mcap" else target


def messages(store, table: dict[str, np.ndarray], ros1: bool) -> Iterator[tuple]:
    """When, on which topic, and what."""
    types = store.types
    vector, twist = types["geometry_msgs/msg/Vector3"], types["geometry_msgs/msg/Twist"]
    time_type, header = types["builtin_interfaces/msg/Time"], types["std_msgs/msg/Header"]
    pose, point = types["geometry_msgs/msg/Pose"], types["geometry_msgs/msg/Point"]
    posed = types["geometry_msgs/msg/PoseWithCovariance"]
    twisted = types["geometry_msgs/msg/TwistWithCovariance"]
    odometry, quaternion = types["nav_msgs/msg/Odometry"], types["geometry_msgs/msg/Quaternion"]
    still = twisted(twist(vector(0.0, 0.0, 0.0), vector(0.0, 0.0, 0.0)), np.zeros(36))
    for t, x, y, theta, omega, v in zip(*(c.tolist() for c in table.values()), strict=True):
        stamp = 1_700_000_000_000_000_000 + round(1e9 * t)
        when = time_type(stamp // 10**9, stamp % 10**9)
        head = header(0, when, "map") if ros1 else header(when, "map")
        turned = quaternion(0.0, 0.0, float(np.sin(theta / 2)), float(np.cos(theta / 2)))
        where = posed(pose(point(x, y, 0.0), turned), np.zeros(36))
        yield stamp, "/odom", odometry(head, "base", where, still)
        yield stamp, "/cmd_vel", twist(vector(v, 0.0, 0.0), vector(0.0, 0.0, omega))


def measure(path: Path, kind: str) -> dict[str, float]:
    """Read a file once; to be called in a process of its own."""
    import h5py  # noqa: F401  libraries of the formats are not what is measured
    import polars  # noqa: F401
    import rosbags.highlevel  # noqa: F401

    import offmap

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, processor = time.perf_counter(), time.process_time()
    data = offmap.read(path, angles=["theta"], **(TOPICS if kind in BAGS else TABLE))
    seconds = time.perf_counter() - wall, time.process_time() - processor
    added = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "rows": len(data.trajectories[0].x),
        "seconds": round(seconds[0], 2),
        "processor_seconds": round(seconds[1], 2),
        "added_mb": round(added / 1e3 if sys.platform == "linux" else added / 1e6),
    }


def size_of(path: Path) -> float:
    """Megabytes of a file, or of the files in a folder."""
    files = [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
    return sum(f.stat().st_size for f in files) / 1e6


def run_all(formats: list[str], megabytes: float) -> dict[str, dict[str, float]]:
    """Write, read and delete a file of each format."""
    found = {}
    for kind in formats:
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder), kind, megabytes)
            command = [sys.executable, __file__, "--one", str(path), "--formats", kind]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[kind] = {"mb": round(size_of(path))} | json.loads(done.stdout)
        print(f"{kind:8}", *(f"{name} {value:<8}" for name, value in found[kind].items()))
    return found


def main() -> None:
    """One run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=float, default=100.0, help="size of each file")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.formats[0])))
        return
    found = run_all(arguments.formats, arguments.mb)
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
