"""A small run of the hardware protocol on the MuJoCo robot, and on recordings."""

import json
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from offmap.cli.reproduce import Reproduce
from offmap.config import Config
from offmap.constraint import ConstraintConfig
from offmap.gp import GPConfig
from offmap.paper.ddr import COLUMNS, DDR, DrivenStudy, Session, hardware_config, reproduce_ddr
from offmap.paper.reference import PAPER
from offmap.paper.runs import stage_count
from offmap.paper.study import cases
from offmap.paper.tables import save, table
from offmap.pseudometric import PseudometricConfig, fit_pseudometric
from offmap.systems.diff_drive import DiffDrive

SMALL = replace(DDR, offline_trajectories=5)
CONFIG = Config(
    dynamics=GPConfig(hyper_points=100),
    constraint=ConstraintConfig(kernels=("cosine",), samples=60),
    integrator="rk4",
)


@pytest.fixture(scope="module")
def run():
    stages = []
    result = reproduce_ddr(
        "paper", config=CONFIG, trials=1, seed=2, experiment=SMALL, progress=stages.append
    )
    return result, stages


def test_record_has_every_row_and_column(run, tmp_path):
    result, _ = run
    record = json.loads(save(result, tmp_path).read_text())
    assert record["system"] == "ddr"
    assert set(record["rows"]) == {"id", "ood00", "ood05", "ood10"}
    for row, cells in record["rows"].items():
        assert set(cells) == set(COLUMNS)
        assert set(PAPER["ddr"][row]) <= set(cells)


def test_table_shows_the_papers_24_cells_and_no_true_constraint(run):
    result, _ = run
    shown = table(result)
    assert [column.header for column in shown.columns[2:]] == ["none", "ideal", "approx"]
    assert shown.row_count == 8


def test_progress_counts_every_stage(run):
    _, stages = run
    study = DrivenStudy("paper", CONFIG, 1, 2, experiment=SMALL)
    assert len(stages) == stage_count(cases(study).values())


def test_noise_is_in_the_online_data_alone(run):
    result, _ = run
    for dynamics in ("GP", "DGP"):
        clean, noisy = (result.errors[row][f"{dynamics}/offline"] for row in ("ood00", "ood10"))
        np.testing.assert_array_equal(clean, noisy)
    assert not np.array_equal(
        result.errors["ood00"]["DGP/none"], result.errors["ood10"]["DGP/none"]
    )


@pytest.fixture(scope="module")
def offline():
    return Session(DDR, DiffDrive(), seed=0).offline()


def test_pseudometric_drops_the_position(offline):
    samples = offline.samples()
    metric = fit_pseudometric(
        np.concatenate([samples.x, samples.u], axis=1),
        samples.xdot,
        offline.input_names,
        key=jax.random.key(0),
        config=PseudometricConfig(),
    )
    assert {name for name, w in metric.input_weights.items() if w > 0.05} == {"theta", "omega", "v"}


def test_offline_drives_show_marker_and_heading_bias(offline):
    samples, robot = offline.samples(), DiffDrive()
    assert samples.x.shape == (400, 3)
    sin, cos = np.sin(samples.x[:, 2]), np.cos(samples.x[:, 2])
    side = -sin * samples.xdot[:, 0] + cos * samples.xdot[:, 1]
    forward = cos * samples.xdot[:, 0] + sin * samples.xdot[:, 1]
    terms = np.stack([samples.xdot[:, 2], forward], axis=1)
    weights, *_ = np.linalg.lstsq(terms, side, rcond=None)
    np.testing.assert_allclose(weights, [robot.marker[0], -robot.heading_bias], atol=0.004)


def test_the_papers_hardware_uses_a_cosine_kernel():
    assert hardware_config("paper").constraint.kernels == ("cosine",)
    assert hardware_config("paper").pseudometric.epsilon == 0.5


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"system": "car"}, "got no --data"),
        ({"system": "unicycle", "data": Path("somewhere")}, "are for ddr and car"),
        ({"system": "quadrotor", "history": 2}, "Leave it out"),
        ({"system": "ddr", "trials": 0}, "at least one trial; got 0"),
        ({"system": "ddr", "data": Path("somewhere"), "engine": "pool"}, "scored in one go"),
    ],
)
def test_wrong_requests_are_refused_before_any_work(asked, message):
    with pytest.raises(ValueError, match=message):
        Reproduce(**asked).run()
