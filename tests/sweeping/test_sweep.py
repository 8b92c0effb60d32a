"""Sweeps: files, resumption, lost workers, and equal answers from every engine."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from work import Job, look, refuse, square, trace

import offmap
from offmap.sweeping.workers import _devices, check_engine

HERE = Path(__file__).parent


def jobs(folder, count, **how):
    return {f"n{i}": Job(str(folder / "log"), i, **how) for i in range(count)}


def test_every_answer_has_a_file_of_its_own_and_is_returned_as_the_file_holds_it(tmp_path):
    answers = offmap.sweep(square, jobs(tmp_path, 3), out=tmp_path / "out", engine="serial")
    assert list(answers) == ["n0", "n1", "n2"]
    assert answers["n2"] == {"square": 4, "third": 2 / 3}
    files = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in files] == ["n0.json", "n1.json", "n2.json"]
    assert json.loads(files[2].read_text()) == answers["n2"]


def test_finished_cases_are_read_broken_and_new_ones_are_run(tmp_path):
    run = partial(offmap.sweep, square, out=tmp_path / "out", engine="serial")
    first = run(jobs(tmp_path, 3))
    (tmp_path / "out" / "n1.json").write_text('{"square"')  # as a full disk leaves it
    again = run(jobs(tmp_path, 4))
    assert {name: again[name] for name in first} == first
    assert [number for number, _ in trace(tmp_path / "log")] == [0, 1, 2, 1, 3]
    run(jobs(tmp_path, 2), fresh=True)
    assert [number for number, _ in trace(tmp_path / "log")][5:] == [0, 1]


@dataclass(frozen=True)
class Point:
    x: float


def test_cases_without_names_are_named_by_what_they_are(tmp_path):
    run = partial(offmap.sweep, out=tmp_path, engine="serial")
    assert run(np.sqrt, [4, 9, 4]) == [2.0, 3.0, 2.0]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["4.json", "9.json"]
    points = [Point(1.0), Point(2.0)]
    assert run(lambda point: point.x, points) == [1.0, 2.0]
    assert run(lambda point: point.x + 5, points[::-1]) == [2.0, 1.0]  # another order, same names


def test_arrays_become_lists_and_lose_no_digit(tmp_path):
    values = np.random.default_rng(0).normal(size=(2, 3))
    answers = offmap.sweep(lambda _: {"a": values}, {"a": 0}, out=tmp_path, engine="serial")
    np.testing.assert_array_equal(np.asarray(answers["a"]["a"]), values)


def test_a_failing_case_says_which_and_keeps_the_rest(tmp_path):
    with pytest.raises(ValueError, match="three is refused") as caught:
        offmap.sweep(refuse, range(6), out=tmp_path, engine="serial")
    assert caught.value.__notes__ == ["in the case 3 of a sweep"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0.json", "1.json", "2.json"]


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """One sweep by two processes, of which one is lost on the way."""
    folder = tmp_path_factory.mktemp("pool")
    cases = jobs(folder, 6) | {"crash": Job(str(folder / "log"), 7, crashes=1)}
    answers = offmap.sweep(
        look, cases, out=folder / "out", workers=2, together=lambda job: job.number % 2
    )
    return trace(folder / "log"), cases, answers


def test_a_pool_gives_the_same_answers_after_losing_a_worker(pool, tmp_path):
    traced, cases, answers = pool
    counts = Counter(number for number, _ in traced)
    assert counts == {**{number: 1 for number in range(6)}, 7: 2}
    assert os.getpid() not in {pid for _, pid in traced}
    here = offmap.sweep(square, cases, out=tmp_path, engine="serial")
    assert {name: answer["answer"] for name, answer in answers.items()} == here


def test_cases_that_belong_together_share_a_worker(pool):
    traced, _, _ = pool
    pids = dict(traced)
    assert len({pids[i] for i in (0, 2, 4)}) == len({pids[i] for i in (1, 3, 5)}) == 1
    assert pids[0] != pids[1]


def test_processes_compute_as_this_one_does(pool):
    *_, answers = pool
    found = answers["n0"]["settings"]
    assert set(found["blas"]) == {1}
    assert found["float"] == "float64"
    assert found["devices"] == ""
    if jax.config.jax_compilation_cache_dir is not None:
        assert found["cache"] == jax.config.jax_compilation_cache_dir
    else:
        assert found["cache"].endswith("jax")


def test_a_case_that_kills_its_workers_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("offmap.sweeping.driver._ATTEMPTS", 1)
    cases = {"good": Job(str(tmp_path / "log"), 1), "bad": Job(str(tmp_path / "log"), 2, 0.0, 99)}
    with pytest.raises(ChildProcessError, match="1 were lost while the case bad"):
        offmap.sweep(square, cases, out=tmp_path, workers=1)
    assert (tmp_path / "good.json").exists()


def test_a_killed_driver_leaves_no_process_and_loses_no_finished_case(tmp_path):
    log = tmp_path / "log"
    script = tmp_path / "drive.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "import offmap\nfrom work import Job, square\n"
        "if __name__ == '__main__':\n"
        f"    cases = {{f'n{{i}}': Job({str(log)!r}, i, 60.0 * (i > 1)) for i in range(3)}}\n"
        f"    offmap.sweep(square, cases, out={str(tmp_path / 'out')!r}, workers=1)\n"
    )
    driver = subprocess.Popen([sys.executable, str(script)])
    try:
        wait_until(lambda: len(trace(log)) == 3)
        worker = trace(log)[-1][1]
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    wait_until(lambda: not alive(worker))
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["n0.json", "n1.json"]
    offmap.sweep(square, jobs(tmp_path, 3), out=tmp_path / "out", engine="serial")
    assert Counter(number for number, _ in trace(log)) == {0: 1, 1: 1, 2: 2}


def wait_until(condition, seconds=240):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def alive(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_processes_share_the_gpus_there_are(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [_devices(seat, 0) for seat in range(2)] == ["", ""]
    assert [_devices(seat, 1) for seat in range(3)] == ["0", "1", "2"]
    assert [_devices(seat, 0.5) for seat in range(4)] == ["0", "0", "1", "1"]
    assert [_devices(seat, 2) for seat in range(2)] == ["0,1", "2,3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert [_devices(seat, 1) for seat in range(2)] == ["4", "6"]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"workers": 0}, "at least one worker; got 0"),
        ({"address": "auto"}, "of a Ray cluster; got 'auto' with engine 'pool'"),
        ({"gpus": -1}, "0 or more GPUs; got -1"),
        ({"cases": {"a/b": 1}, "engine": "serial"}, "that of its file; got 'a/b'"),
        ({"cases": [object()], "engine": "serial"}, "Give a mapping from names"),
        ({"function": lambda _: 1}, "that its processes can import"),
        ({"function": lambda _: object(), "engine": "serial"}, "what JSON can hold"),
    ],
)
def test_impossible_sweeps_are_refused(tmp_path, how, message):
    asked = {"function": square, "cases": {"a": 1}, "out": tmp_path} | how
    with pytest.raises(ValueError, match=message):
        offmap.sweep(asked.pop("function"), asked.pop("cases"), **asked)


def test_an_unknown_engine_is_refused():
    with pytest.raises(ValueError, match="one of pool, ray, serial; got 'steam'"):
        check_engine(square, "steam", None, None, 0)


def test_without_ray_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'offmap\[ray\]'"):
        offmap.sweep(square, jobs(tmp_path, 1), out=tmp_path, engine="ray")
