"""A sweep over a real Ray cluster of several nodes, one of which is killed on the way."""

import os
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from work import Job, look, refuse, square, trace

import offmap

ray = pytest.importorskip(
    "ray", reason="ray is not installed; pip install 'offmap[ray]', then make test-ray"
)
pytestmark = [
    pytest.mark.ray,
    # Ray's own: sockets and files left to the garbage collector, and advice about its future.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
HERE = str(Path(__file__).parent)


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", HERE, prepend=os.pathsep)  # nodes have to import `work`
        patch.setenv("RAY_worker_register_timeout_seconds", "600")  # on a busy machine
        patch.setenv("RAY_enable_worker_prestart", "0")
        found = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        yield found
        found.shutdown()


def test_a_killed_node_costs_nothing_but_the_case_under_way(cluster, tmp_path):
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    log = tmp_path / "log"
    cases = {f"n{i}": Job(str(log), i, 2.0, workers=2) for i in range(6)}
    before = {}

    def kill_node():
        while len(trace(log)) < 4:  # two are done, two under way
            time.sleep(0.05)
        before.update(Counter(number for number, _ in trace(log)))
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill_node, daemon=True)
    killer.start()
    answers = offmap.sweep(
        square, cases, out=tmp_path / "out", engine="ray", address=cluster.address
    )
    killer.join()
    assert len(before) < len(cases)  # it was killed in the middle
    counts = Counter(number for number, _ in trace(log))
    assert set(counts) == set(range(6))
    assert sum(counts.values()) <= len(cases) + 1  # the one that was under way on the node
    assert offmap.sweep(square, cases, out=tmp_path / "here", engine="serial") == answers


def test_actors_compute_as_this_process_does_and_name_a_failing_case(cluster, tmp_path):
    run = {"engine": "ray", "address": cluster.address, "workers": 1}
    found = offmap.sweep(look, {"a": Job(str(tmp_path / "log"), 1)}, out=tmp_path, **run)
    assert set(found["a"]["settings"]["blas"]) == {1}
    assert found["a"]["settings"]["float"] == "float64"
    with pytest.raises(ValueError, match="three is refused") as caught:
        offmap.sweep(refuse, [3], out=tmp_path, **run)
    assert str(caught.value) == "three is refused"  # without the traceback of the node
    assert caught.value.__notes__ == ["in the case 3 of a sweep"]
