"""The rules of the house: imports go one way, files name no machine, importing stays light."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "offmap"

# A room imports from itself and from the rooms before it.
ROOMS = (
    "types",
    "batches",
    "calls",
    "threads",
    "programs",
    "data",
    "systems",
    "features",
    "pseudometric",
    "regressor",
    "gp",
    "angles",
    "mlp",
    "sparsity",
    "projection",
    "constraint",
    "pattern",
    "turning",
    "tangent",
    "gauge",
    "axes",
    "dynamics",
    "predictor",
    "rollout",
    "config",
    "differentiation",
    "summary",
    "storage",
    "sampling",
    "trust",
    "export",
    "model",
    "heldout",
    "stages",
    "structure",
    "discovery",
    "symmetry",
    "fitting",
    "sweeping",
    "paper",
    "report",
    "control",
    "bench",
    "cli",
)


# --- imports go one way


def imported_modules(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield the line and absolute dotted name of every import, for a file inside `package`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *filter(None, [node.module])))
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def import_violations(package: Path) -> list[str]:
    """Return one line per import that breaks the order of `ROOMS` in the package folder given."""
    violations = []
    for file in sorted(package.rglob("*.py")):
        relative = file.relative_to(package)
        if relative in (Path("__init__.py"), Path("__main__.py")):
            continue
        room = relative.parts[0].removesuffix(".py")
        if room not in ROOMS:
            violations.append(f"{relative}: room '{room}' has no place in ROOMS")
            continue
        inside = (package.name, *relative.parts[:-1])
        for line, name in imported_modules(ast.parse(file.read_text("utf-8")), inside):
            top, _, rest = name.partition(".")
            if top != package.name:
                continue
            target = rest.partition(".")[0]
            # A name that is no room comes from the package itself, which gathers all rooms.
            rank = ROOMS.index(target) if target in ROOMS else len(ROOMS) - 1
            if rank > ROOMS.index(room):
                violations.append(f"{relative}:{line}: '{room}' imports '{name}' from below")
    return violations


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return root


def test_rooms_import_only_from_rooms_above():
    assert (PACKAGE / "__init__.py").is_file()
    assert import_violations(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("gp/kernels.py", "from offmap.dynamics import Dynamics"),
        ("gp/kernels.py", "from offmap import dynamics"),
        ("gp/kernels.py", "from offmap import fit"),
        ("gp/kernels.py", "import offmap"),
        ("gp/kernels.py", "import numpy, offmap.model as m"),
        ("gp/kernels.py", "from ..constraint.basis import rref"),
        ("gp/kernels.py", "from .. import constraint"),
        ("gp/deep/er.py", "from ...rollout import euler"),
        ("gp/__init__.py", "from ..rollout import euler"),
        ("types.py", "from .data import Dataset"),
        ("types.py", "from . import data"),
        ("types.py", "from . import *"),
        ("dynamics.py", "def f():\n    from offmap.predictor import Predictor"),
        ("dynamics.py", "if TYPE_CHECKING:\n    from .model import Model"),
        ("unplaced.py", ""),
    ],
)
def test_checker_reports_a_violation(tmp_path, file, source):
    package = write_tree(tmp_path / "offmap", {"__init__.py": "", file: source})
    violations = import_violations(package)
    assert len(violations) == 1
    assert violations[0].startswith(file)


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("__init__.py", "from offmap.cli import main\nfrom .model import fit"),
        ("gp/kernels.py", "from offmap.types import Point\nfrom ..data import Dataset"),
        ("gp/kernels.py", "from .exact import solve\nfrom . import exact\nfrom offmap import gp"),
        ("gp/__init__.py", "from .kernels import RBF\nfrom . import model"),
        ("gp/kernels.py", "import offmapper.cli\nfrom other.offmap import cli"),
        ("config.py", "from .rollout import euler"),
        ("cli.py", "import offmap\nfrom offmap import fit"),
    ],
)
def test_checker_accepts_what_is_allowed(tmp_path, file, source):
    package = write_tree(tmp_path / "offmap", {"__init__.py": "", file: source})
    assert import_violations(package) == []


# --- files name no machine

# Written in pieces, so that this file passes its own test.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("anaconda", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("crates", "io"),
    )
)
FORBIDDEN = re.compile(
    "|".join(
        (
            *map(re.escape, REGISTRY_HOSTS),
            # An absolute path: not the tail of a relative path, an address or a variable.
            r"(?<![\w.~)}*-])/(?:work|home|root|Users)/",
        )
    ),
    re.IGNORECASE,
)
UNTRACKED_FOLDERS = {".git", ".venv", ".cache", ".device", ".hypothesis", "build", "dist"}
UNTRACKED_FOLDERS |= {".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__", "results"}


def repository_files(root: Path) -> list[Path]:
    """Return the files git tracks or would add; without git, all outside generated folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        found = []
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if f not in UNTRACKED_FOLDERS]
            found += [Path(folder) / f for f in files]
    else:
        found = [root / name for name in listed.decode().split("\0") if name]
    return sorted(path for path in found if path.is_file())


def machine_names(files: list[Path]) -> list[str]:
    """Return one line per place where a text file names a registry host or a machine's path."""
    found = []
    for file in files:
        content = file.read_bytes()
        if b"\0" in content:  # not text
            continue
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), start=1):
            found += [f"{file}:{number}: {match[0]}" for match in FORBIDDEN.finditer(line)]
    return found


def test_no_file_names_a_registry_or_a_machine_path():
    files = repository_files(ROOT)
    assert ROOT / "pyproject.toml" in files
    assert Path(__file__).resolve() in files
    assert machine_names(files) == []


@pytest.mark.parametrize(
    "text",
    [
        *(f"--index-url https://{host}/simple" for host in REGISTRY_HOSTS),
        *(f"open('/{top}/someone/x.csv')" for top in ("work", "home", "root", "Users")),
        "file:///" + "home/someone/x.csv",
    ],
)
def test_search_finds_a_machine_name(tmp_path, text):
    write_tree(tmp_path, {"docs/a.md": f"first line\n{text}\n", "docs/b.md": "clean\n"})
    found = machine_names(repository_files(tmp_path))
    assert len(found) == 1
    assert found[0].startswith(f"{tmp_path / 'docs' / 'a.md'}:2:")


def test_search_leaves_relative_paths_and_addresses_alone(tmp_path):
    text = "data/home/x ./{0}/x ~/{0}/x $(OUT)/{0}/x https://example.com/home/x".format("work")
    write_tree(tmp_path, {"a.md": text})
    (tmp_path / "b.bin").write_bytes(b"\0/" + b"home/someone")
    assert machine_names(repository_files(tmp_path)) == []


# --- the pins are exact, and hold what pyproject.toml asks for


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_requirements_pin_every_dependency_exactly():
    lines = (ROOT / "requirements.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    exact = [re.fullmatch(r"([A-Za-z0-9._-]+)==[A-Za-z0-9.]+( ?; .+)?", pin) for pin in pins]
    assert [pin for pin, match in zip(pins, exact, strict=True) if match is None] == []

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    wanted = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *extras["logs"],
        *extras["test"],
        *extras["docs"],
        *extras["dev"],
    ]
    names = {canonical(re.match(r"[A-Za-z0-9._-]+", requirement)[0]) for requirement in wanted}
    assert names - {canonical(match[1]) for match in exact if match} == set()


# --- importing stays light


def run_python(code: str) -> str:
    """Return what `code` prints in a fresh interpreter that sees this checkout."""
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_offmap_loads_no_heavy_library():
    loaded = json.loads(run_python("import offmap, sys, json; print(json.dumps([*sys.modules]))"))
    assert "offmap" in loaded
    heavy = {"matplotlib", "tyro", "rich", "sklearn", "torch", "polars", "h5py", "rosbags"}
    heavy |= {"casadi", "gymnasium"}
    assert heavy & {name.partition(".")[0] for name in loaded} == set()


def test_importing_offmap_turns_on_64_bit_floats():
    code = "import offmap, jax.numpy as jnp; print(jnp.zeros(1).dtype)"
    assert run_python(code).strip() == "float64"
