"""The page is complete in itself, says what was found, and judges the model honestly."""

import re
import sys
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from offmap.cli.report import Report
from offmap.data import Dataset, Trajectory
from offmap.report import write
from offmap.report.figures import plane
from offmap.report.manifold import scenes
from offmap.report.trials import _deviation, hold_out
from offmap.report.words import headline


def visible(path):
    """The page without its scripts and styles."""
    text = path.read_text("utf-8")
    return re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)


def test_a_page_is_one_file_that_asks_for_nothing(pages):
    for path in pages.values():
        assert path.stat().st_size < 8e6
        text = visible(path)
        assert "default-src 'none'" in text
        assert not re.search(r"<[^>]+(src|href)='?\"?(https?:|//)", text)


def test_names_cannot_break_the_page(pages):
    text = visible(pages["unicycle"])
    assert "&lt;/script&gt;&lt;b&gt;&amp;v" in text
    assert "<b>&v" not in pages["unicycle"].read_text("utf-8").replace("\\u003c", "")


def test_the_page_says_what_was_found(pages, unicycle_model):
    text = visible(pages["unicycle"])
    assert unicycle_model.retained.tangent is not None
    assert "sin(theta)·px&#x27; − cos(theta)·py&#x27; = 0" in text
    assert text.count("class='bar dropped'") == 2  # px and py
    assert "class='gap'" in text
    assert headline(unicycle_model).startswith("Every motion obeys 1 constraint")


def test_models_without_constraint_or_pseudometric_have_a_page(pages, free_model):
    text = visible(pages["free"])
    assert headline(free_model) == "No constraint on the motion was found, and all inputs are used."
    assert "There is no constraint to draw" in text
    assert "No pseudometric was learned" in text


def test_motions_are_drawn_in_the_plane_of_positions(unicycle_model, quadrotor_model):
    assert plane(unicycle_model) == (0, 1)
    assert plane(quadrotor_model) == (0, 1)


def test_held_out_predictions_do_not_know_what_was_held_out(unicycle_model):
    """Spoil the derivatives of one trajectory: only predictions of others may change."""
    dataset = unicycle_model.dataset

    def with_derivatives(spoil):
        trajectories = []
        for k, t in enumerate(dataset):
            xdot = np.diff(t.x, axis=0) / t.dt
            trajectories.append(Trajectory(t.x, t.u, t.dt, xdot + 0.3 * (spoil and k == 2)))
        names = (dataset.state_names, dataset.control_names, dataset.angles)
        return replace(unicycle_model, dataset=Dataset(trajectories, *names))

    def predictions(held_out):
        return {t.window.trajectory: t.predicted["none"] for t in held_out.trials}

    clean, spoilt = (predictions(hold_out(with_derivatives(s))) for s in (False, True))
    # Trajectories 2 and 7 share a fold of five.
    moved = {k for k in clean if np.abs(clean[k] - spoilt[k]).max() > 1e-12}
    assert moved == set(range(8)) - {2, 7}


@pytest.mark.slow
def test_a_band_begins_at_nothing_and_grows_by_the_standard_deviation_of_velocity(unicycle_model):
    predictor = unicycle_model.with_constraint(None).predictor
    x0, u = unicycle_model.dataset.samples().x[0], np.array([[0.15, 1.2]])
    band = np.asarray(_deviation(predictor, jnp.asarray(x0), jnp.asarray(u), 0.1, "euler"))
    std = np.sqrt(predictor.dynamics.variance(jnp.asarray(x0), jnp.asarray(u[0])))
    np.testing.assert_array_equal(band[0], 0)
    np.testing.assert_allclose(band[1], 0.1 * std, rtol=1e-4)


def test_the_manifold_holds_what_the_constraint_allows(unicycle_model):
    (scene,) = scenes(unicycle_model)
    surface, points = scene["manifold"]["data"]
    for data in (surface, points):
        residual = np.sin(data["z"]) * data["x"] - np.cos(data["z"]) * data["y"]
        assert np.abs(residual).max() < 1e-9
    patches = scene["feasible"]["data"][0]
    x, y, z = (np.reshape(patches[axis], (-1, 4)) for axis in "xyz")
    theta = z.mean(axis=1, keepdims=True)
    slip = np.sin(theta) * (x - x[:, :1]) - np.cos(theta) * (y - y[:, :1])
    assert np.ptp(x) > 1
    assert np.abs(slip).max() < 1e-9


def test_every_row_of_a_larger_system_is_drawn(quadrotor_model):
    found = scenes(quadrotor_model)
    kinematic, thrust = found[0]["manifold"], found[3]["manifold"]
    assert len(found) == 4
    # px' = vx whatever another velocity does: the height is the state along the first axis.
    surface = kinematic["data"][0]
    np.testing.assert_allclose(surface["z"], surface["x"], atol=1e-12)
    assert kinematic["layout"]["scene"]["zaxis"]["title"]["text"] == "px'"
    vx, vz, phi = (thrust["data"][0][axis] for axis in "xyz")
    np.testing.assert_allclose(np.cos(phi) * vx + np.sin(phi) * (vz + 9.81), 0, atol=1e-9)


def test_a_page_is_never_written_by_halves(tmp_path, free_model, monkeypatch):
    with pytest.raises(ValueError, match="written to a file"):
        write(free_model, tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        write(free_model, tmp_path / "missing" / "page.html")
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ValueError, match=r"offmap\[report\]"):
        write(free_model, tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_the_page_and_names_it_after_the_model(tmp_path, free_model, capsys):
    free_model.save(tmp_path / "robot.offmap")
    Report(tmp_path / "robot.offmap", out=tmp_path / "page.html").run()
    assert "<h1>robot</h1>" in visible(tmp_path / "page.html")
    assert "page.html" in capsys.readouterr().out.replace("\n", "")
