"""The bench: ratios mean what they say, the gate opens and closes, absent peers are named."""

import json
from dataclasses import replace

import numpy as np
import pytest

from offmap.bench import Limit, Metric, Outcome, growth_exponent, judge, read_baseline, run
from offmap.bench.fits import growth_outcomes
from offmap.bench.limits import exp_seconds
from offmap.bench.peers import AbstractPeer, ScikitLearn, all_peers, missing_modules, present
from offmap.bench.problems import problem
from offmap.bench.projections import closed_form, kkt_solution
from offmap.bench.tables import tables
from offmap.bench.timing import clocked, interleaved
from offmap.cli.bench import Bench

SECONDS = Metric("fit/toy", "s", "lower", 0.5)


def outcome(ours=2.0, **peers):
    return Outcome(SECONDS, ours, peers or {"slow": 8.0, "fast": 1.0}, Limit(0.5, "the clock"))


def baseline(*outcomes):
    """What the gate reads from an earlier run's file, through JSON as in life."""
    return {o.metric.name: json.loads(json.dumps(o.to_json())) for o in outcomes}


# --- arithmetic


def test_a_ratio_below_one_is_ahead_in_either_direction():
    assert SECONDS.ratio(2.0, 8.0) == 0.25
    assert replace(SECONDS, direction="higher").ratio(8.0, 2.0) == 0.25


def test_the_fastest_peer_is_the_hardest_to_beat():
    found = outcome()
    assert found.ratios == {"slow": 0.25, "fast": 2.0}
    assert found.fastest_peer == "fast"
    assert found.limit_ratio == 4.0
    rates = replace(found, metric=replace(SECONDS, direction="higher"))
    assert rates.fastest_peer == "slow"
    assert rates.limit_ratio == 0.25


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_growth_exponent_recovers_a_power_law(power):
    sizes = [1e3, 1e4, 1e5]
    assert growth_exponent(sizes, [7 * s**power for s in sizes]) == pytest.approx(power)


def test_growth_is_judged_as_a_factor_against_the_data():
    sizes = {1_000: 20.0, 10_000: 30.0, 100_000: 300.0}
    runs = [{"samples": n, "seconds": s, "peak_mb": 500.0} for n, s in sizes.items()]
    seconds, memory = growth_outcomes(runs)
    assert seconds.metric.name == "growth/unicycle-10000-100000/seconds"
    assert seconds.limit_ratio == pytest.approx(1.0)
    assert seconds.details["exponent"] == pytest.approx(1.0)
    assert memory.limit_ratio == pytest.approx(0.1)
    assert judge([seconds], baseline(seconds)).regressions == []


def test_growth_exponent_needs_two_sizes():
    with pytest.raises(ValueError, match="two sizes or more"):
        growth_exponent([1e3], [2.0])


def test_the_exp_limit_takes_the_faster_library_and_all_cores():
    limits = {"cores": 4, "all": {"exp_ns": {"xla": 0.5, "numpy": 1.1}}}
    limits["one"] = {"exp_ns": {"xla": 1.6, "numpy": 1.0}}
    assert exp_seconds(limits) == pytest.approx(0.25e-9)  # NumPy's, on each of four cores
    limits["all"]["exp_ns"]["xla"] = 0.2
    assert exp_seconds(limits) == pytest.approx(0.2e-9)


def test_interleaved_takes_turns_and_keeps_the_best():
    turns = []
    seconds = {"a": iter([3.0, 1.0, 2.0]), "b": iter([5.0, 6.0, 4.0])}

    def job(name):
        turns.append(name)
        return next(seconds[name])

    found = interleaved({name: lambda name=name: job(name) for name in "ab"}, 3)
    assert found == {"a": 1.0, "b": 4.0}
    assert turns == ["a", "b"] * 3


def test_who_has_used_the_budget_sits_out():
    turns = []
    interleaved({"a": clocked(lambda: turns.append(1))}, 5, budget=0.0)
    assert turns == [1]  # the first turn is everyone's
    interleaved({"a": clocked(lambda: turns.append(1), calls=3)}, 2)
    assert len(turns) == 1 + 6


# --- the gate


def test_gate_passes_within_tolerance():
    verdict = judge([outcome(ours=2.8)], baseline(outcome(ours=2.0)))
    assert verdict.regressions == []
    assert verdict.compared == 2  # a peer and the limit


def test_gate_names_what_got_worse():
    verdict = judge([outcome(ours=3.2)], baseline(outcome(ours=2.0)))
    assert len(verdict.regressions) == 2
    for said in ("fit/toy", "6.4", "baseline 4", "tolerance 50%"):
        assert said in verdict.regressions[1]


def test_gate_ignores_a_slower_machine():
    slower = Outcome(SECONDS, 20.0, {"slow": 80.0, "fast": 10.0}, Limit(5.0, "the clock"))
    assert judge([slower], baseline(outcome())).regressions == []


def test_one_peer_with_a_slow_moment_decides_nothing():
    before = outcome(ours=2.0, a=1.0, b=2.0, c=4.0)
    lucky = outcome(ours=2.0, a=0.1, b=2.0, c=4.0)  # a was slow when the baseline was taken
    assert judge([lucky], baseline(before)).regressions == []
    worse = outcome(ours=4.0, a=0.1, b=2.0, c=4.0)
    assert any("fit/toy" in line for line in judge([worse], baseline(before)).regressions)


def test_gate_says_what_it_could_not_compare():
    verdict = judge([outcome()], {})
    assert verdict.notes == ["fit/toy: not in the baseline"]
    others = replace(outcome(), peers={"new": 1.0}, limit=None)
    verdict = judge([others], baseline(outcome()))
    assert verdict.compared == 0
    assert "none of the baseline's peers" in verdict.notes[0]


@pytest.mark.parametrize(
    ("content", "says"), [(None, "not there"), ("{}", "metrics"), ("[", "JSON")]
)
def test_a_baseline_that_is_none_is_refused(tmp_path, content, says):
    path = tmp_path / "baseline.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match="--baseline") as refused:
        read_baseline(path)
    assert says in str(refused.value)


# --- peers


class Absent(AbstractPeer):
    name, recipe, needs = "Absent", "none", ("no_such_module_at_all",)

    def fit(self, x, y, brief):
        raise AssertionError("a peer that is not installed must not be asked")

    def predict(self, x):
        raise AssertionError("a peer that is not installed must not be asked")


def test_an_absent_peer_is_skipped_with_a_reason(tmp_path):
    assert "no_such_module_at_all not installed" in missing_modules(Absent.needs)
    report = run(["projection"], quick=True, scratch=tmp_path, peers=[Absent()])
    assert "Absent" in report.to_json()["skipped"]
    assert "Absent" not in report.recipes
    assert any("not compared" in str(table.title) for table in tables(report))


@pytest.mark.filterwarnings("ignore")  # of libraries that are not ours
@pytest.mark.parametrize("peer", all_peers(), ids=lambda peer: peer.name)
def test_a_peer_learns_a_straight_line_and_rolls_it_out(peer):
    if missing_modules(peer.needs):
        pytest.skip(missing_modules(peer.needs))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    y = x @ np.array([[-0.5, 0.2], [0.0, -0.3], [1.0, 0.4]])
    peer.fit(x, y, brief=True)
    assert peer.predict(x[:5]).shape == (5, 2)
    controls = rng.normal(size=(4, 3, 1))
    states = peer.rollouts(x[:4, :2], controls, 0.1)
    assert states.shape == (4, 4, 2)
    step = x[:4, :2] + 0.1 * peer.predict(np.concatenate([x[:4, :2], controls[:, 0]], axis=1))
    np.testing.assert_allclose(states[:, 1], step, atol=1e-6)


def test_scikit_learn_learns(tmp_path):
    peer = ScikitLearn()
    assert present((peer,))[1] == {}
    x = np.random.default_rng(1).normal(size=(30, 2))
    peer.fit(x, np.stack([x[:, 0], -x[:, 1]], axis=1), brief=False)
    np.testing.assert_allclose(peer.predict(x[:3]), x[:3] * [1, -1], atol=1e-2)


# --- problems and measurements


def test_problems_have_the_samples_asked_for():
    data = problem("unicycle", 525, rollouts=3)
    assert data.x.shape == (525, 5)
    assert data.y.shape == (525, 3)
    assert data.controls.shape == (3, 100, 2)
    assert data.kernel_values == 525 * 3 * 3 * 100
    with pytest.raises(ValueError, match="50 samples at least"):
        problem("unicycle", 10)


def test_oracles_of_the_projection_agree():
    rng = np.random.default_rng(2)
    xdot, gamma = rng.normal(size=(7, 5)), rng.normal(size=(7, 2, 6))
    exact = kkt_solution(xdot, gamma)
    np.testing.assert_allclose(closed_form(xdot, gamma), exact, atol=1e-11)
    np.testing.assert_allclose(
        np.einsum("bcn,bn->bc", gamma[..., :-1], exact), -gamma[..., -1], atol=1e-11
    )


def test_unknown_measurements_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"got speed\. Choose"):
        run(["speed"], quick=True, scratch=tmp_path)


# --- the command


def test_the_command_measures_and_gates(tmp_path, capsys):
    out = tmp_path / "out"
    command = Bench(quick=True, only=("projection",), out=out)
    command.run()
    content = json.loads((out / "bench.json").read_text())
    time, error = content["metrics"]
    assert time["name"] == "projection/4x6/time"
    assert time["ratios"]["NumPy"] == time["ours"] / time["peers"]["NumPy"]
    assert error["ours"] < 1e-12
    assert (out / "bench.png").is_file()

    time["ratios"] = {name: ratio / 100 for name, ratio in time["ratios"].items()}
    strict = tmp_path / "baseline.json"
    strict.write_text(json.dumps(content))
    with pytest.raises(SystemExit) as ended:
        replace(command, gate=True, baseline=strict).run()
    assert ended.value.code == 1
    assert "regression: projection/4x6/time" in capsys.readouterr().out


def test_gate_without_a_baseline_measures_nothing(tmp_path):
    command = Bench(gate=True, out=tmp_path / "out", baseline=tmp_path / "none.json")
    with pytest.raises(ValueError, match="which is not there"):
        command.run()
    assert list(tmp_path.iterdir()) == []
