"""A small run of the protocol: the record, its statistics, and what the paper claims."""

import json
from dataclasses import replace

import numpy as np
import pytest

import offmap
from offmap.cli.reproduce import Reproduce
from offmap.config import Config
from offmap.constraint import ConstraintConfig
from offmap.gp import GPConfig
from offmap.paper import EXPERIMENTS, ROWS, SimulatedStudy, reproduce
from offmap.paper.experiment import COLUMNS, bootstrap_interval, statistics
from offmap.paper.figures import draw
from offmap.paper.reference import PAPER
from offmap.paper.runs import gather, run_case, stage_count
from offmap.paper.study import cases, fit_of
from offmap.paper.tables import save
from offmap.sweeping import Folder

SMALL = replace(EXPERIMENTS["unicycle"], offline_trajectories=12, tests=2)
CONFIG = Config(
    dynamics=GPConfig(hyper_points=200), constraint=ConstraintConfig(kernels=("cosine",))
)
STUDY = SimulatedStudy(SMALL, "paper", CONFIG, 2, 4)


@pytest.fixture(scope="module")
def run():
    stages = []
    result = reproduce(SMALL, "paper", config=CONFIG, trials=2, seed=4, progress=stages.append)
    return result, stages


def test_record_has_every_row_and_column(run, tmp_path):
    result, _ = run
    record = json.loads(save(result, tmp_path).read_text())
    assert record["system"] == "unicycle"
    assert record["preset"] == "paper"
    assert (record["seed"], record["trials"]) == (4, 2)
    assert set(record["rows"]) == {"id", "ood00", "ood05", "ood10"}
    for cells in record["rows"].values():
        assert set(cells) == set(COLUMNS)
        for cell in cells.values():
            assert cell["n"] == 4
            assert cell["ci95"][0] <= cell["mean"] <= cell["ci95"][1]


def test_progress_counts_every_stage(run):
    _, stages = run
    assert len(stages) == stage_count(cases(STUDY).values())


def test_every_cell_is_below_the_papers(run):
    result, _ = run
    for row in ROWS:
        for column, (mean, _) in PAPER["unicycle"][row.key].items():
            assert result.errors[row.key][column].mean() < mean


def test_learned_constraint_is_as_good_as_the_true_one(run):
    result, _ = run
    for row in ROWS[1:]:
        learned, true = (result.errors[row.key][f"DGP/{p}"].mean() for p in ("approx", "true"))
        assert learned < 1.5 * true + 1e-3


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The same study by processes of their own."""
    folder = tmp_path_factory.mktemp("study")
    records = offmap.sweep(
        run_case, cases(STUDY), out=folder, engine="pool", workers=2, together=fit_of
    )
    return folder, records


@pytest.mark.slow
def test_a_pool_gives_identical_errors(run, swept):
    result, _ = run
    folder, records = swept
    again = gather(STUDY, records)
    for row, cells in result.errors.items():
        for column, errors in cells.items():
            np.testing.assert_array_equal(errors, again.errors[row][column])
    trials = [path for path in folder.iterdir() if "trial" in path.name]
    assert len(trials) == 2 * 2 * len(ROWS)  # models, trials, rows
    found, first = again.to_json(), result.to_json()
    assert {**found, "seconds": 0} == {**first, "seconds": 0}


def test_the_command_goes_on_where_it_was(swept, tmp_path, monkeypatch, capsys):
    _, records = swept
    missing = list(records)[-1]
    for name, record in records.items():
        if name != missing:
            Folder(tmp_path / "trials").write(name, record)
    asked = []

    def running(case, progress):
        asked.append(case.stem)
        return records[case.stem]

    monkeypatch.setattr("offmap.paper.runs.run_case", running)
    monkeypatch.setattr("offmap.cli.reproduce._study", lambda name, asked: STUDY)
    Reproduce("unicycle", out=tmp_path).run()
    assert asked == [missing]
    assert f"{len(records) - 1} of {len(records)} cases are in" in capsys.readouterr().out
    saved = json.loads((tmp_path / "unicycle-paper.json").read_text())
    assert saved["rows"] == gather(STUDY, records).to_json()["rows"]


def test_models_come_back_whole(run, swept):
    result, _ = run
    _, records = swept
    again = gather(STUDY, records)
    x, u = np.array([3.0, -2.0, 0.5]), np.array([0.1, 1.0])
    for name in ("GP", "DGP"):
        ours, theirs = (found.stages[True].models[name] for found in (result, again))
        np.testing.assert_array_equal(ours.predict(x, u), theirs.predict(x, u))


def test_figures_are_drawn(run, tmp_path):
    result, _ = run
    paths = draw(result, tmp_path)
    assert [path.name.split("-")[-1] for path in paths] == [
        "manifold.png",
        "data.png",
        "trajectories.png",
        "discovery.png",
    ]
    assert all(path.stat().st_size > 10_000 for path in paths)


def test_statistics_against_numpy():
    errors = np.random.default_rng(0).gamma(2.0, size=(10, 5))
    found = statistics(errors)
    assert found["mean"] == pytest.approx(errors.mean())
    assert found["std"] == pytest.approx(errors.std())
    assert found["n"] == 50


def test_bootstrap_interval_covers_the_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        trial = rng.normal(size=(12, 1)) + 0.1 * rng.normal(size=(12, 5))
        low, high = bootstrap_interval(trial, draws=500)
        covered += low <= 0 <= high
    assert 0.84 < covered / 200 < 0.99


def test_no_trials_are_refused():
    with pytest.raises(ValueError, match="at least one trial; got 0"):
        reproduce(SMALL, "paper", trials=0)
