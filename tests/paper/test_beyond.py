"""Beyond the paper: one small cell end to end, its record, its resumption and its noise."""

import json
import pickle
from dataclasses import asdict, replace

import jax
import numpy as np
import pytest

from offmap.cli.reproduce import Reproduce
from offmap.config import Config
from offmap.constraint import ConstraintConfig
from offmap.fitting import fit
from offmap.gp import GPConfig
from offmap.mlp import MLPConfig
from offmap.paper import beyond
from offmap.paper.baselines import unavailable
from offmap.paper.beyond import (
    COLUMNS,
    MODELS,
    Cell,
    Entry,
    cells_folder,
    gather,
    run_entry,
    simulate,
)
from offmap.paper.beyond_tables import save, tables
from offmap.paper.cases import CASES
from offmap.pseudometric import PseudometricConfig
from offmap.sweeping import Folder

CELL = Cell("slip", 0.001, "paper", trials=1, seed=2)
CASE = CASES["slip"]
SMALL = replace(
    CASE,
    experiment=replace(
        CASE.experiment, offline_trajectories=6, offline_steps=10, test_actions=2, tests=2
    ),
)
CONFIG = Config(
    dynamics=GPConfig(iterations=20),
    constraint=ConstraintConfig(kernels=("rbf",)),
    pseudometric=PseudometricConfig(steps=100),
)
QUICK = MLPConfig(members=2, width=8, depth=1, steps=50)


@pytest.fixture(scope="module")
def run():
    stages = []
    entries = {}
    for model in MODELS:
        if model not in unavailable():
            settings = {"config": CONFIG, "mlp": QUICK, "case": SMALL, "progress": stages.append}
            entries[model] = run_entry(Entry(CELL, model), **settings)
    (record,) = gather(entries.values())
    return record, entries, stages


def test_a_cell_has_every_column_or_the_reason_why_not(run):
    record, _, _ = run
    assert set(record["columns"]) | set(record["skipped"]) == set(COLUMNS)
    assert {"MLP/none", "MLP/approx", "least squares", "DGP/true"} <= set(record["columns"])
    for column, cell in record["columns"].items():
        errors = np.asarray(record["errors"][column])
        assert errors.shape == (1, 2)
        assert np.all(errors >= 0)
        assert cell["mean"] == pytest.approx(errors.mean())


def test_the_record_survives_json(run):
    record, _, _ = run
    text = json.dumps(record, allow_nan=False)
    assert json.loads(text) == record
    assert record["cell"] == asdict(CELL)


def test_a_false_constraint_has_no_true_rows_to_compare_with(run):
    record, _, _ = run
    assert record["found"]["c_true"] == 0
    assert record["found"]["angle"] is None
    np.testing.assert_array_equal(record["errors"]["DGP/true"], record["errors"]["DGP/none"])


def test_judgement_measures_the_angle_to_the_true_rows():
    case = CASES["unicycle"]
    small = replace(case, experiment=replace(case.experiment, offline_trajectories=6))
    offline, _ = simulate(small, Cell("unicycle", 0.0, trials=1))
    free = fit(offline, config=replace(CONFIG, sparsify=False), project="none")

    # As if the heading were read wrongly.
    turned = free.with_constraint(lambda x: case.system.gamma(x.at[2].add(0.1)))
    found = case.judge(turned)
    assert found["angle"] == pytest.approx(0.1)
    assert (found["c"], found["c_true"]) == (1, 1)
    assert not found["kept_right"]  # positions are in, and do not belong there
    assert case.judge(free)["angle"] is None


def test_progress_counts_every_stage(run):
    _, entries, stages = run
    assert len(stages) == beyond.stage_count(Entry(CELL, model) for model in entries)


def test_equal_cells_and_only_they_have_equal_names():
    changes = ({}, {"trials": 2}, {"noise": 0.01}, {"declare_angles": False}, {"seed": 25})
    entries = [Entry(replace(CELL, **change), model) for change in changes for model in MODELS]
    assert len({entry.stem for entry in entries}) == len(entries)
    assert Entry(replace(CELL), "GP").stem == Entry(CELL, "GP").stem


def test_unknown_models_are_refused():
    with pytest.raises(ValueError, match="is one of DGP, GP, MLP"):
        Entry(CELL, "SVM")


def test_the_summary_gathers_the_finished_cells_of_a_family(run, tmp_path):
    record, entries, _ = run
    kept = Folder(cells_folder(tmp_path))
    for system, noise in (("tanh", 0.01), ("slip", 0.01), ("tanh", 0.0)):
        cell = replace(CELL, system=system, noise=noise)
        for model, entry in entries.items():
            kept.write(Entry(cell, model).stem, entry | {"cell": asdict(cell)})
    other = replace(CELL, seed=25)  # of another family: seed 2 is its beginning
    kept.write(Entry(other, "GP").stem, entries["GP"] | {"cell": asdict(other)})
    path = beyond.summarise(CELL.family, tmp_path)
    cells = json.loads(path.read_text())["cells"]
    assert [(c["cell"]["noise"], c["cell"]["system"]) for c in cells] == [
        (0.0, "tanh"),
        (0.01, "tanh"),
        (0.01, "slip"),
    ]
    assert all("errors" not in cell for cell in cells)
    assert all(cell["columns"] == record["columns"] for cell in cells)
    assert len(list(tables(cells))) == 4  # errors and discoveries at two levels
    text = save(path).read_text()
    assert "1.0% noise on all data" in text
    assert "tanh" in text


def test_the_command_runs_what_is_missing_and_prints_all(run, tmp_path, monkeypatch, capsys):
    _, entries, _ = run
    asked = []

    def running(entry, *, progress):
        asked.append((entry.cell.system, entry.cell.noise, entry.model))
        return entries[entry.model] | {"cell": asdict(entry.cell)}

    monkeypatch.setattr(beyond, "run_entry", running)
    ask = Reproduce("beyond", systems=("tanh",), models=("GP",), trials=1, out=tmp_path)
    replace(ask, noise=(0.01,)).run()
    assert asked == [("tanh", 0.01, "GP")]
    replace(ask, noise=(0.0, 0.01), models=("GP", "DGP")).run()
    assert asked[1:] == [("tanh", 0.0, "GP"), ("tanh", 0.0, "DGP"), ("tanh", 0.01, "DGP")]
    assert "1 of 4 cases" in capsys.readouterr().out
    replace(ask, noise=(0.01,), models=()).run()
    assert {model for _, _, model in asked} == set(entries)
    summary = json.loads((tmp_path / "beyond-default-trials1-seed0.json").read_text())
    assert [len(cell["seconds"]) for cell in summary["cells"]] == [2, len(entries)]


def test_options_of_beyond_are_refused_elsewhere():
    with pytest.raises(ValueError, match="are for beyond; got them with unicycle"):
        Reproduce("unicycle", noise=(0.01,)).run()


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_noise_is_a_share_of_the_spread_on_states_and_derivatives(noise):
    case = CASES["unicycle"]
    clean, trials = simulate(case, Cell("unicycle", 0.0, trials=1))
    noisy, measured = simulate(case, Cell("unicycle", noise, trials=1))
    true, seen = clean.samples(), noisy.samples()
    for a, b in ((true.x, seen.x), (true.xdot, seen.xdot)):
        np.testing.assert_allclose((b - a).std(axis=0), noise * a.std(axis=0), rtol=0.15)
    np.testing.assert_array_equal(seen.u, true.u)
    apart = measured[0].online.x - trials[0].online.x
    np.testing.assert_allclose(apart.std(axis=0), noise * true.x.std(axis=0), rtol=0.6)
    np.testing.assert_array_equal(measured[0].test_states, trials[0].test_states)


def test_flights_in_space_start_with_unit_quaternions():
    experiment = CASES["quadrotor3d"].experiment
    offline = experiment.offline(jax.random.key(0), out_of_distribution=True)
    starts = np.stack([log.x[0] for log in offline])
    np.testing.assert_allclose(np.linalg.norm(starts[:, 3:7], axis=1), 1, rtol=1e-12)


@pytest.mark.parametrize("name", list(CASES))
def test_cases_name_inputs_they_have_and_boxes_that_fit(name):
    case, system = CASES[name], CASES[name].system
    names = set(system.state_names + system.control_names)
    assert case.inputs <= names
    assert (case.in_frame or set()) <= names
    assert len(case.experiment.ood_online_box.low) == system.n
    assert case.experiment.horizon == 100


def test_cells_travel_between_processes():
    assert pickle.loads(pickle.dumps(CELL)) == CELL


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"system": "hovercraft"}, "one of unicycle, tanh"),
        ({"noise": -0.1}, "from 0 to below 1; got -0.1"),
        ({"trials": 0}, "at least one trial; got 0"),
    ],
)
def test_impossible_cells_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(CELL, **change)
