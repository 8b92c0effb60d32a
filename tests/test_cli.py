"""The command line teaches, and answers bad input with one line."""

import subprocess
import sys


def offmap(*arguments):
    return subprocess.run(
        [sys.executable, "-c", "from offmap.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_help_lists_commands_with_examples():
    answer = offmap("--help")
    assert answer.returncode == 0
    for word in ("reproduce", "demo", "Example: offmap reproduce unicycle"):
        assert word in answer.stdout


def test_the_package_runs_as_a_module():
    answer = subprocess.run(
        [sys.executable, "-m", "offmap", "inspect", "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0
    assert "Example: offmap inspect" in answer.stdout


def test_help_of_a_command_explains_its_options():
    answer = offmap("reproduce", "--help")
    for option in ("--preset", "--trials", "--seed", "--out"):
        assert option in answer.stdout


def test_a_bad_value_is_one_clear_line(tmp_path):
    answer = offmap("reproduce", "unicycle", "--trials", "0", "--out", str(tmp_path))
    assert answer.returncode == 2
    assert "at least one trial; got 0" in answer.stdout + answer.stderr
    assert "Traceback" not in answer.stdout + answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_system_is_refused():
    answer = offmap("reproduce", "hovercraft")
    assert answer.returncode != 0
    assert "Traceback" not in answer.stdout + answer.stderr


def test_compiled_programs_are_kept_between_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    code = (
        "import sys; sys.argv = ['offmap', 'reproduce', 'unicycle', '--trials', '0']\n"
        "import jax, jax.numpy as jnp\n"
        "from offmap.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)\n"
        "jax.jit(lambda a: jnp.linalg.svd(a @ a.T))(jnp.eye(5))"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=True)
    assert any((tmp_path / "offmap" / "jax").iterdir())
