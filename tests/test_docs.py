"""Every code block of every page runs, or is a command that its own parser accepts.

`docs/logs.md` is followed from top to bottom by tests/test_logs.py, and the README's first example
by tests/test_readme.py. All other blocks of Python run here, and so does `offmap inspect`; commands
that take minutes are parsed, not run.
"""

import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import tyro
from markdown_it import MarkdownIt

import offmap
from offmap.cli import Command, main
from offmap.config import Config

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLLOWED = {"logs.md"}  # by tests/test_logs.py, every block
NOT_CODE = {"text", "{toctree}", "{eval-rst}"}


def blocks(page):
    """(language, content) of each fenced block; of indented ones the language is "indented"."""
    tokens = MarkdownIt().parse(page.read_text("utf-8"))
    found = [(t.info.strip() or "none", t.content) for t in tokens if t.type == "fence"]
    return found + [("indented", t.content) for t in tokens if t.type == "code_block"]


def commands(block):
    """The command lines of a block, comments dropped."""
    lines = (shlex.split(line, comments=True) for line in block.splitlines())
    return [line for line in lines if line]


def python_of(page):
    found = [content for language, content in blocks(page) if language == "python"]
    return found[1:] if page.name == "README.md" else found


# --- all blocks are of a kind that is tested


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_block_escapes_the_tests(page):
    languages = {language for language, _ in blocks(page)}
    assert languages <= {"python", "sh", "indented"} | NOT_CODE
    for language, content in blocks(page):
        if language == "indented":  # equations, but no commands
            assert not re.search(r"^(\$ )?(offmap|make|pip|python)\b|^import ", content, re.M)


# --- commands


def check(command, page):
    program, *arguments = command
    if program == "offmap" and "--help" not in arguments:
        tyro.cli(Command, args=arguments, prog="offmap")
    elif program == "offmap":
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert stopped.value.code == 0
    elif program == "make":
        makefile = (ROOT / "Makefile").read_text("utf-8")
        assert re.search(rf"^{arguments[0]}:", makefile, re.M), f"{page}: make {arguments[0]}"
    elif program == "python":
        script = (ROOT / arguments[0]).read_text("utf-8")
        for option in arguments[1:]:
            if option.startswith("--"):
                name = option[2:].partition("=")[0]
                assert name in script or name.replace("-", "_") in script, f"{page}: {option}"
    else:
        raise AssertionError(f"{page}: no test knows the command {program!r}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_accepted_by_their_parsers(page, capsys):
    for language, content in blocks(page):
        if language == "sh":
            for command in commands(content):
                check(command, page.name)


@pytest.mark.parametrize(
    "line",
    ["offmap fit a.csv --states px --control v", "make everything", "python benchmarks/none.py"],
)
def test_a_wrong_command_is_seen(line, capsys):
    with pytest.raises((SystemExit, AssertionError, FileNotFoundError)):
        check(shlex.split(line), "page")


def test_extras_that_pages_name_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    text = " ".join(page.read_text("utf-8") for page in PAGES)
    named = {*re.findall(r"offmap\[(\w+)\]", text), *re.findall(r"extra `(\w+)`", text)}
    assert {"logs", "report", "casadi"} <= named <= {*project["optional-dependencies"]}


# --- Python


@pytest.fixture(scope="module")
def fitted():
    """What pages take as given: a model of a unicycle, states, controls, a cost."""
    rng = np.random.default_rng(0)
    logs = []
    for _ in range(6):
        u = rng.uniform([-1, 0.2], [1, 1.5], (10, 2))
        theta = rng.uniform(-1, 1) + 0.1 * np.r_[0, np.cumsum(u[:, 0])]
        steps = 0.1 * u[:, 1:] * np.stack([np.cos(theta[:-1]), np.sin(theta[:-1])], 1)
        p = rng.uniform(-5, 5, 2) + np.r_[np.zeros((1, 2)), np.cumsum(steps, 0)]
        logs.append(offmap.Trajectory(np.c_[p, theta], u, dt=0.1))
    data = offmap.Dataset(logs, ["px", "py", "theta"], ["omega", "v"], angles=["theta"])
    model = offmap.fit(data, config=small("default"))
    return {
        "offmap": offmap,
        "data": data,
        "model": model,
        "trajectory": replace(logs[0], source="online"),
        "x": jnp.array([1.0, 2.0, 0.3]),
        "u": jnp.array([0.1, 1.0]),
        "X": np.zeros((5, 3)),
        "U": np.full((5, 2), 0.5),
        "x0": np.zeros(3),
        "my_gamma": lambda x: jnp.stack([jnp.array([jnp.sin(x[2]), -jnp.cos(x[2]), 0.0, 0.0])]),
        "cost": lambda x, u, target: jnp.sum((x[:2] - target) ** 2),
        "target": np.ones((30, 2)),
        "reward": lambda x, u: -float(np.sum(x[:2] ** 2)),
        **streams(rng),
    }


def streams(rng):
    """A drive and its commands, each on a clock of its own."""
    time = np.arange(0, 20, 0.02)
    commands = np.c_[0.5 * np.sin(time), 1 + 0.3 * np.cos(0.7 * time)]
    theta = 0.02 * np.cumsum(commands[:, 0])
    moved = 0.02 * commands[:, 1:] * np.stack([np.cos(theta), np.sin(theta)], 1)
    poses = np.c_[np.cumsum(moved, 0), theta] + 1e-4 * rng.normal(size=(len(time), 3))
    return {"pose_time": time, "poses": poses, "command_time": time, "commands": commands}


def small(name):
    """Both presets, with little to search."""
    full = Config(embed_angles=True) if name == "default" else Config()
    return replace(
        full,
        kernels=("bilinear",) if name == "default" else ("rbf",),
        representations=("dictionary", "rows") if name == "default" else ("rows",),
        dynamics=replace(full.dynamics, iterations=20, hyper_points=60),
        constraint=replace(full.constraint, kernels=("rbf",), samples=40),
    )


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if python_of(page) and page.name not in FOLLOWED],
    ids=lambda page: page.name,
)
def test_python_runs(page, fitted, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Config, "preset", staticmethod(small))
    Path("logs").mkdir()
    Path("logs/run0.csv").write_text("t,p,u\n0,0,1\n1,1,0\n2,2,1\n")  # inspected on formats.md
    variables = dict(fitted)
    first = page.name == "README.md"
    for language, content in blocks(page):
        if language == "python" and first:
            first = False  # tests/test_readme.py runs it
        elif language == "python":
            exec(content, variables)
        elif language == "sh":
            for _, *arguments in (c for c in commands(content) if c[:2] == ["offmap", "inspect"]):
                if page.name == "formats.md":
                    main(arguments)
    if page.name == "formats.md":
        assert [len(log.x) for log in offmap.read("runs.h5", **variables["names"])] == [50, 40, 30]
        assert len(variables["data"].samples()) == 49
