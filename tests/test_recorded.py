"""The examples on recordings find what is true of every robot: q' = w, p' = v."""

import os
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("OFFMAP_SHARED", ROOT.parent / "shared")) / "data"


@pytest.fixture
def found(request, monkeypatch):
    """What an example leaves behind, run small."""
    name, recordings = request.param
    if not (SHARED / recordings).is_dir():
        pytest.skip(f"the recordings {recordings} are not beside this repository")
    pytest.importorskip("polars", reason="reading logs needs the extra `logs`")
    monkeypatch.setenv("OFFMAP_SMALL", "1")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    yield runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    sys.modules.pop("recorded", None)


def equations(found):
    return [equation.text for equation in found["model"].constraints.equations]


def states_that_are_velocities(texts):
    """Velocity by position, for every equation of the form p' = v, within 2 % of it."""
    number = r"(?:([\d.]+)(?:\(±[\d.]+\))?·)?"
    found = {}
    for text in texts:
        match = re.fullmatch(rf"{number}(\w+)' − {number}(\w+) = 0", text)
        if match and abs(float(match[1] or 1) / float(match[3] or 1) - 1) < 0.02:
            found[match[2]] = match[4]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("found", [("joints_of_an_arm", "schunk_arm")], indirect=True)
def test_joint_velocities_of_an_arm_are_found(found):
    assert states_that_are_velocities(equations(found)) == {f"q{i}": f"w{i}" for i in range(1, 7)}
