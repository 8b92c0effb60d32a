"""The page in a real browser: it draws, asks for nothing, and computes what Python computes."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from browser import CHROMIUM, DRIVER, Browser

from offmap.axes import TurnedAxes
from offmap.constraint import DictionaryConstraint, LearnedConstraint, Library
from offmap.constraint.learned import Row
from offmap.dynamics import Dynamics
from offmap.gp import kernel_named
from offmap.gp.expansion import Scaling
from offmap.gp.kernels import Product
from offmap.gp.posterior import condition
from offmap.pattern import pattern_of
from offmap.predictor import Predictor
from offmap.pseudometric import Reduction
from offmap.report.export import NotExportable, export_variants
from offmap.tangent import Guide, tangent_frame
from offmap.turning import Turning

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs Chromium and chromedriver (Debian: chromium-driver)"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module", params=["unicycle", "quadrotor", "free"])
def page(request, browser, pages):
    """A page just opened; tests of one page follow each other."""
    browser.resize(1280, 900)
    browser.requests()  # of pages opened before
    browser.open(pages[request.param])
    return pages[request.param]


ONLY = {
    name: pytest.mark.parametrize("page", [name], indirect=True)
    for name in ("unicycle", "quadrotor")
}


def test_it_draws_every_figure_without_errors_or_requests(browser, page):
    empty = browser.run(
        "return [...document.querySelectorAll('.plot')]"
        ".filter(p => !p.closest('[hidden]') && !p.querySelector('.main-svg, canvas'))"
        ".map(p => p.id)"
    )
    assert empty == []
    assert browser.errors() == []
    assert browser.requests() == [page.as_uri()]


def test_it_fits_a_phone(browser, page):
    browser.resize(360, 740)
    widest, smallest, cut = browser.run(
        "const texts = [...document.querySelectorAll('main *, header *')].filter(e => e.innerText);"
        "return new Promise(done => setTimeout(() => done("  # figures follow the window
        "[document.documentElement.scrollWidth,"
        " Math.min(...texts.map(e => parseFloat(getComputedStyle(e).fontSize))),"
        " [...document.querySelectorAll('#steer-results *')]"
        "  .filter(e => e.getBoundingClientRect().right > 360).length]), 500))"
    )
    browser.resize(1280, 900)
    assert widest == 360
    assert smallest >= 10
    assert cut == 0  # numbers of the steered rollout


def states(browser):
    """The paths on show, by variant."""
    return browser.run("return window.offmapSteered")


def move(browser, name, value):
    browser.run(
        "const e = document.getElementById(arguments[0]);"
        "if (e.type === 'checkbox') e.checked = arguments[1]; else e.value = arguments[1];"
        "e.dispatchEvent(new Event('input')); e.dispatchEvent(new Event('change'));"
        "return new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))",
        name,
        value,
    )


@ONLY["unicycle"]
def test_the_reader_steers_what_python_rolls_out(browser, page, unicycle_model):
    before = states(browser)
    x0, first, second = [40.0, -30.0, 2.5], [0.1, 1.0], [-0.15, 0.5]
    for i, value in enumerate(x0):
        move(browser, f"steer-x-{i}", value)
    for segment, control in enumerate((first, second)):
        for j, value in enumerate(control):
            move(browser, f"steer-u-{segment}-{j}", value)
    move(browser, "steer-steps", 30)
    read = browser.run(
        "return [0, 1].map(s => [0, 1].map(j =>"
        " Number(document.getElementById(`steer-u-${s}-${j}`).value)))"
    )
    controls = np.repeat(np.array(read), 15, axis=0)  # sliders move in steps
    after = states(browser)
    assert np.shape(after) == (3, 31, 3)
    assert np.shape(before) != np.shape(after)
    expected = unicycle_model.rollout(x0, controls)
    np.testing.assert_allclose(after[2], expected, atol=1e-6)
    told = browser.run("return document.getElementById('steer-words').textContent")
    assert told.startswith("Every input that the model uses stays within")


@ONLY["unicycle"]
def test_a_recorded_drive_can_be_replayed(browser, page, unicycle_model):
    move(browser, "steer-start", "trajectory 1")
    move(browser, "steer-replay", True)
    shown = np.array(states(browser))
    assert shown.shape[1] == 13  # twelve recorded controls
    recorded = unicycle_model.dataset.trajectories[0].x
    assert np.abs(shown[2] - recorded).max() < 0.05


@ONLY["quadrotor"]
def test_choosing_another_rollout_and_another_constraint_redraws(browser, page):
    read = (
        "return [document.querySelector('#state-0').data.at(-1).y,"
        " document.querySelector('#scene-words').textContent]"
    )
    before = browser.run(read)
    browser.run(
        "for (const id of ['trial', 'scene']) { const s = document.getElementById(id);"
        " s.selectedIndex = s.options.length - 1; s.dispatchEvent(new Event('change')); }"
    )
    after = browser.run(read)
    assert before[0] != after[0]
    assert before[1] != after[1]
    assert "(vx', vz', phi)" in after[1]
    assert browser.errors() == []


@ONLY["unicycle"]
def test_it_prints_and_returns_to_the_screen(browser, page, tmp_path):
    width = "return document.querySelector('#horizon').clientWidth"
    before = browser.run(width)
    browser.print_pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    assert browser.run("return document.querySelector('img').naturalWidth") == 640
    assert browser.run(width) == before


def test_models_on_show_agree_with_python_far_from_their_data(browser, page, request):
    model = request.getfixturevalue(f"{page.stem}_model")
    rng = np.random.default_rng(3)
    x, u = 5 * rng.standard_normal((8, model.dataset.n)), rng.standard_normal((8, model.dataset.m))
    np.testing.assert_allclose(
        evaluate(browser, model.predictor, x, u), model.predict(x, u), atol=1e-6
    )


# --- the evaluator


def random_gps(key, kernel, d, p):
    """GPs with hyperparameters drawn at random, given random data."""
    keys = jax.random.split(key, 4)
    leaves, tree = jax.tree.flatten(kernel)
    drawn = [
        leaf[None] + 0.3 * jax.random.normal(jax.random.fold_in(keys[0], i), (p, *leaf.shape))
        for i, leaf in enumerate(leaves)
    ]
    x, y = jax.random.normal(keys[1], (20, d)), jax.random.normal(keys[2], (20, p))
    scaling = Scaling.of(np.asarray(x), np.asarray(y))
    return condition(jax.tree.unflatten(tree, drawn), jnp.full(p, 0.1), scaling, x, y)


def evaluate(browser, predictor, x, u):
    spec = json.loads(json.dumps(export_variants({"it": predictor})))["it"]
    script = (
        "const model = offmapPredictor.build(arguments[0]);"
        "return arguments[1].map((x, i) => Array.from(model.predict(x, arguments[2][i])))"
    )
    return np.array(browser.run(script, spec, x.tolist(), u.tolist()))


KERNELS = {
    **{name: kernel_named(name, 5) for name in ("rbf", "linear", "cosine", "rbf+linear")},
    "affine": kernel_named("affine", 5, (3, 4)),
    "quadratic": kernel_named("quadratic", 5),
    "product": Product(kernel_named("rbf", 5), kernel_named("linear", 5)),
}


@pytest.fixture(scope="module")
def evaluator(browser, pages):
    browser.open(pages["free"])
    return browser


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_agrees_with_python(evaluator, name):
    """Also projected onto a constraint of Gaussian processes, two rows at a time."""
    names = ("a", "b", "c", "d", "e")
    keys = jax.random.split(jax.random.key(1), 3)
    rows = tuple(
        Row(
            Reduction.everything(names[:3]),
            random_gps(k, kernel_named("cosine", 3), 3, 4),
            "cosine",
        )
        for k in keys[:2]
    )
    dynamics = Dynamics(Reduction.everything(names), random_gps(keys[2], KERNELS[name], 5, 3))
    rng = np.random.default_rng(2)
    x, u = 2 * rng.standard_normal((6, 3)), 2 * rng.standard_normal((6, 2))
    for gamma in (None, LearnedConstraint(rows)):
        predictor = Predictor(dynamics, gamma)
        expected = jax.vmap(predictor)(jnp.asarray(x), jnp.asarray(u))
        np.testing.assert_allclose(evaluate(evaluator, predictor, x, u), expected, atol=1e-6)


def test_products_and_sums_of_angles_in_a_constraint_agree_with_python(evaluator):
    rng = np.random.default_rng(3)
    library = Library(
        ("a", "b", "c"), (1, 2), (1, 2), ((1, 2), (2, 3), (6, 6), (1, 2, 2))
    ).with_sums()
    weights = rng.standard_normal((2, len(library.labels), 4))
    gamma = DictionaryConstraint(library, jnp.asarray(weights))
    names = ("a", "b", "c", "d", "e")
    gps = random_gps(jax.random.key(1), kernel_named("rbf", 5), 5, 3)
    predictor = Predictor(Dynamics(Reduction.everything(names), gps), gamma)
    x, u = rng.standard_normal((6, 3)), rng.standard_normal((6, 2))
    expected = jax.vmap(predictor)(jnp.asarray(x), jnp.asarray(u))
    np.testing.assert_allclose(evaluate(evaluator, predictor, x, u), expected, atol=1e-6)


def test_a_frame_in_another_gauge_agrees_with_python(evaluator):
    rng = np.random.default_rng(4)
    library = Library(("a", "b", "c"), ())
    gamma = DictionaryConstraint(library, jnp.asarray(rng.normal(size=(1, len(library.labels), 4))))
    frame = tangent_frame(gamma, rng.normal(size=(50, 3)), ())
    guide = Guide(library, jnp.asarray(rng.normal(size=(3, len(library.labels)))), 1)
    frame = replace(frame, measured=(0, 2), guide=guide, pull=jnp.asarray(rng.normal(size=3)))
    names = ("a", "b", "c", "d", "e")
    gps = random_gps(jax.random.key(1), kernel_named("rbf", 5), 5, 2)
    predictor = Predictor(Dynamics(Reduction.everything(names), gps, frame), gamma)
    x, u = rng.standard_normal((6, 3)), rng.standard_normal((6, 2))
    expected = jax.vmap(predictor)(jnp.asarray(x), jnp.asarray(u))
    np.testing.assert_allclose(evaluate(evaluator, predictor, x, u), expected, atol=1e-6)


def test_a_frame_in_which_a_state_follows_others_agrees_with_python(evaluator):
    rng = np.random.default_rng(5)
    library = Library(("a", "b", "c", "d"), ())
    weights = 0.2 * rng.normal(size=(2, len(library.labels), 5))
    weights[0, :, 2:4], weights[1, 0, 3] = 0, 3.0  # a row about a and b, and one d follows by
    gamma = DictionaryConstraint(library, jnp.asarray(weights))
    mentions = np.array([[True, True, False, False], [True, True, True, True]])
    frame = tangent_frame(gamma, rng.normal(size=(50, 4)), (), mentions)
    pattern, pull = pattern_of(mentions, ((1, 3),)), jnp.asarray(rng.normal(size=4))
    frame = replace(frame, pattern=pattern, pull=pull)
    names = ("a", "b", "c", "d", "e")
    gps = random_gps(jax.random.key(1), kernel_named("rbf", 5), 5, 2)
    predictor = Predictor(Dynamics(Reduction.everything(names), gps, frame), gamma)
    x, u = rng.standard_normal((6, 4)), rng.standard_normal((6, 1))
    expected = jax.vmap(predictor)(jnp.asarray(x), jnp.asarray(u))
    np.testing.assert_allclose(evaluate(evaluator, predictor, x, u), expected, atol=1e-6)


def test_axes_that_turn_agree_with_python(evaluator):
    rng = np.random.default_rng(6)
    gps = random_gps(jax.random.key(1), kernel_named("rbf", 5), 5, 3)
    axes = TurnedAxes(Turning(angle=1, first=2, second=0), 3)
    predictor = Predictor(Dynamics(Reduction.everything(tuple("abcde")), gps, axes), None)
    x, u = rng.standard_normal((6, 3)), rng.standard_normal((6, 2))
    expected = jax.vmap(predictor)(jnp.asarray(x), jnp.asarray(u))
    np.testing.assert_allclose(evaluate(evaluator, predictor, x, u), expected, atol=1e-6)


def test_what_a_page_cannot_evaluate_is_said(unicycle_model):
    with pytest.raises(NotExportable, match="Python function"):
        export_variants({"it": Predictor(unicycle_model.world, lambda x: jnp.ones((1, 4)))})
