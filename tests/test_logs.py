"""docs/logs.md runs as written, and what the commands leave behind is what they say."""

import contextlib
import io
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import offmap
from offmap.cli import main
from offmap.config import Config
from offmap.data.lag import command_lag
from offmap.data.quality import quality_warnings
from offmap.data.reading import read_controls
from offmap.heldout import trajectory_errors, used_structure

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "logs.md").read_text("utf-8")


def follow(folder):
    """Do in a folder what the page says; what each command printed, and Python's variables."""
    printed, variables = {}, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for language, block in re.findall(r"```(python|sh)\n(.*?)```", PAGE, re.S):
            text = io.StringIO()
            with contextlib.redirect_stdout(text):
                if language == "python":
                    exec(block, variables)
                else:
                    command, *arguments = shlex.split(block)
                    assert command == "offmap"
                    main(arguments)
                    printed[arguments[0]] = text.getvalue()
    return printed, variables


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The folder in which the page was followed, with a search that is cut short."""
    full = Config.preset("default")
    small = replace(
        full,
        kernels=("linear", "bilinear"),
        slope_check=None,
        constraint=replace(full.constraint, kernels=("rbf",), samples=60),
    )
    folder = tmp_path_factory.mktemp("followed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Config, "preset", staticmethod(lambda name: small))
        printed, variables = follow(folder)
    return folder, printed, variables


NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]\d+)?(?![\w.]*\w)")
ROUNDING = 1e-6  # errors below this are rounding, and say only that they are small
DROPPED = 0.05  # so are weights of inputs that are dropped


def words(text):
    return NUMBER.sub("#", text).splitlines()


def alike(number, shown):
    """Counts are equal; what was measured is of the same order, or as good as nothing in both."""
    found, expected = float(number), float(shown)
    if number.isdigit() and shown.isdigit():
        return found == expected
    nothing = DROPPED if "e" not in number + shown else ROUNDING
    return max(found, expected) < nothing or 0.1 < found / max(expected, 1e-300) < 10


def assert_shown(printed):
    """What a fit prints is what the page shows, but for the seconds it took."""
    printed, shown = (text.rpartition("\n")[0].rpartition("\n")[0] for text in (printed, SHOWN))
    assert words(printed) == words(shown)
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True)
    assert [pair for pair in pairs if not alike(*pair)] == []


SHOWN = re.findall(r"```text\n(.*?)```", PAGE, re.S)[0]


def test_fit_prints_what_the_page_shows(told):
    assert_shown(told[1]["fit"])
    assert "sin(theta)·px' − cos(theta)·py' = 0" in SHOWN


@pytest.mark.parametrize(
    ("number", "shown", "same"),
    [
        ("3.0e-10", "9.0e-03", False),
        ("3.0e-10", "7e-12", True),
        ("0.64", "0.7", True),
        ("0.000", "0.006", True),
        ("0.641", "0.006", False),
        ("10", "11", False),
    ],
)
def test_numbers_are_compared_loosely_but_compared(number, shown, same):
    assert alike(number, shown) == same


@pytest.mark.slow
def test_the_page_runs_as_it_is(tmp_path):
    printed, _ = follow(tmp_path)
    assert_shown(printed["fit"])


def test_the_numbers_of_a_fit_lie_beside_it(told):
    folder, _, variables = told
    model, numbers = variables["model"], json.loads((folder / "robot.json").read_text("utf-8"))
    assert numbers["c"] == model.constraints.c == 1
    assert numbers["retained"]["dynamics"] == list(model.retained.dynamics)
    assert numbers["samples"] == 200
    assert numbers["choices"]["used"] == model.choices.used
    assert [*numbers["held_out"]] == [
        "all inputs",
        "all inputs, projected",
        "kept inputs",
        "kept inputs, projected",
        "tangent",
    ]
    assert {file.name for file in folder.iterdir()} == {
        "logs", "inspect.json", "robot.offmap", "robot.json", "states.csv", "copy.offmap",
        "robot.html",
    }  # fmt: skip


def test_the_model_file_holds_the_whole_model(told):
    folder, _, variables = told
    again = offmap.load(folder / "copy.offmap")
    assert (folder / "copy.offmap").read_bytes() == (folder / "robot.offmap").read_bytes()
    log = again.dataset.trajectories[3]
    assert np.array_equal(again.rollout(log.x[0], log.u[:20]), variables["states"][:-1])
    np.testing.assert_allclose(
        again.predict([50, 50, 3.0], [0.1, 1.0]), [np.cos(3), np.sin(3), 0.1], atol=1e-6
    )


def test_rollout_writes_the_predicted_states(told):
    folder, printed, variables = told
    written = np.genfromtxt(folder / "states.csv", delimiter=",", names=True)
    assert written.dtype.names == ("t", "px", "py", "theta")
    log = variables["model"].dataset.trajectories[1]
    expected = variables["model"].rollout([0, 0, 0.5], log.u)
    assert np.array_equal(np.stack([written[n] for n in ("px", "py", "theta")], 1), expected)
    assert "21 steps of 0.1 s end at px" in printed["rollout"]


def test_inspect_suggests_the_mapping(told):
    folder, printed, _ = told
    assert "--state px py theta --control omega v --angles theta --time t" in printed["inspect"]
    ((stream,),) = json.loads((folder / "inspect.json").read_text("utf-8")).values()
    assert stream["rows"] == 21
    assert stream["rate"] == pytest.approx(10)
    assert [c["looks"] for c in stream["columns"]] == [
        "time",
        "",
        "",
        "angle",
        "control",
        "control",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--start", "0", "0"], "--start needs 3 numbers, for px, py, theta; got 2"),
        (["--start", "0", "0", "0", "--control", "w=x"], "maps the model's controls omega, v"),
        (["--start", "0", "0", "0", "--control", "v=speed"], "no column 'speed'"),
        (["--start", "nan", "0", "0"], "must be finite"),
    ],
)
def test_rollout_refuses_what_does_not_fit_the_model(told, capsys, tmp_path, arguments, message):
    folder = told[0]
    fixed = ["rollout", str(folder / "robot.offmap"), "--controls", str(folder / "logs/run0.csv")]
    with pytest.raises(SystemExit) as stopped:
        main([*fixed, *arguments, "--out", str(tmp_path / "states.csv")])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_rollout_refuses_controls_in_other_units_and_several_files(told, capsys, tmp_path):
    folder = told[0]
    stamps = 1_700_000_000_000_000_000 + 100_000_000 * np.arange(40)
    rows = [f"{stamp},0.1,1.0" for stamp in stamps]
    (tmp_path / "ns.csv").write_text("\n".join(["t,omega,v", *rows]))
    fixed = ["rollout", str(folder / "robot.offmap"), "--start", "0", "0", "0.5"]
    out = ["--out", str(tmp_path / "states.csv")]
    for controls, message in (
        (tmp_path / "ns.csv", "Give time_unit"),
        (folder / "logs" / "*.csv", "matches 10 files. Name one"),
    ):
        with pytest.raises(SystemExit):
            main([*fixed, "--controls", str(controls), *out])
        (line,) = capsys.readouterr().out.splitlines()
        assert message in line
    main([*fixed, "--controls", str(tmp_path / "ns.csv"), "--time-unit", "ns", *out])
    assert "40 steps of 0.1 s end at" in capsys.readouterr().out


def test_report_makes_the_folder_of_its_page(told, tmp_path):
    main(["report", str(told[0] / "robot.offmap"), "--out", str(tmp_path / "new" / "page.html")])
    assert (tmp_path / "new" / "page.html").stat().st_size > 1e5


def test_a_damaged_model_is_refused_in_one_line(told, capsys, tmp_path):
    (tmp_path / "m").write_bytes((told[0] / "robot.offmap").read_bytes()[:-100])
    with pytest.raises(SystemExit):
        main(["rollout", str(tmp_path / "m"), "--start", "0", "--controls", "c.csv"])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("offmap: ")
    assert "not a whole offmap model file" in line


def test_controls_with_a_time_are_held_onto_the_models_step(told, tmp_path):
    (tmp_path / "plan.csv").write_text("t,omega,v\n0,1,2\n0.25,3,4\n0.5,5,6\n")
    held = read_controls(tmp_path / "plan.csv", ["omega", "v"], dt=0.1)
    assert held[:, 0].tolist() == [1, 1, 1, 3, 3, 5]
    (tmp_path / "rows.csv").write_text("omega,v\n1,2\n3,4\n")
    assert read_controls(tmp_path / "rows.csv", ["omega", "v"], dt=0.1).tolist() == [[1, 2], [3, 4]]


def test_held_out_errors_see_a_false_constraint_and_need_three_trajectories(told):
    model = told[2]["model"]
    false = model.with_constraint(lambda x: jnp.array([[1.0, 0.0, 0.0, 0.0]]))
    errors = trajectory_errors(false)
    for inputs in ("all inputs", "kept inputs"):
        projected, free = errors[f"{inputs}, projected"], errors[inputs]
        assert projected.one_step > 100 * free.one_step
        assert projected.rollout > 100 * free.rollout
    assert used_structure(false) == "kept inputs, projected"
    few = offmap.Dataset(model.dataset.trajectories[:2], ["px", "py", "theta"], ["omega", "v"])
    assert trajectory_errors(replace(model, dataset=few)) == {}


def log(seed=0, rows=40, **change):
    rng = np.random.default_rng(seed)
    x, u = rng.normal(size=(rows, 2)).cumsum(axis=0), rng.normal(size=(rows, 2))
    return offmap.Trajectory(change.get("x", x), change.get("u", u), dt=0.1)


def test_warnings_name_what_makes_learning_hard():
    def said(*logs):
        return " ".join(quality_warnings(offmap.Dataset(logs, ["a", "b"], ["c", "d"])))

    assert said(log(0), log(1)) == ""
    near = offmap.Trajectory(log(0).x + 1e-4, log(0).u + 1e-4, dt=0.1)
    assert "near-duplicate trajectories: 1 pairs" in said(log(0), log(1), near)
    still = log(2, x=np.r_[log(2).x[:20], np.repeat(log(2).x[19:20], 20, axis=0)])
    assert "nothing moves in" in said(still)
    steps = log(3, u=np.c_[np.sign(log(3).u[:, 0]), log(3).u[:, 1]])
    assert "'c' takes only 2 different values" in said(steps)
    tied = log(4, u=np.c_[log(4).u[:, 0], 2 * log(4).u[:, 0]])
    assert "'c' and 'd' always vary together" in said(tied)


@pytest.mark.parametrize(("delay", "slow"), [(0, 1), (2, 1), (0, 8), (3, 8)])
def test_a_lag_is_warned_of_also_where_commands_change_slowly(delay, slow):
    rng = np.random.default_rng(delay)

    def run():
        u = np.repeat(rng.normal(size=(80 // slow, 1)), slow, axis=0)
        pushed = np.r_[np.zeros((delay, 1)), u[: len(u) - delay]]
        x = np.r_[np.zeros((1, 1)), 0.1 * np.cumsum(pushed, axis=0)]
        return offmap.Trajectory(x + rng.normal(scale=1e-3, size=x.shape), u, dt=0.1)

    data = offmap.Dataset([run() for _ in range(4)], ["p"], ["v"])
    said = [text for text in quality_warnings(data) if text.startswith("lag")]
    assert bool(said) == (delay > 0)
    if delay:
        assert f"by about {0.1 * delay:.2g} s" in said[0]
        assert f"history={delay}" in said[0]
        assert any("lag" in text for text in quality_warnings(data, delay - 1))
        assert not any("lag" in text for text in quality_warnings(data, delay))


def test_too_few_samples_say_nothing_of_a_lag():
    rng = np.random.default_rng(0)
    u = rng.normal(size=(12, 1))
    late = offmap.Trajectory(0.1 * np.cumsum(np.r_[0, 0, u[:-1, 0]])[:, None], u, dt=0.1)
    assert command_lag(offmap.Dataset([late])) is None
