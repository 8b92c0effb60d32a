"""Model files: what is loaded is what was saved, to the last bit, and nothing else is accepted."""

import dataclasses
import importlib
import json
import pkgutil
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import offmap
from offmap import storage
from offmap.config import Config
from offmap.constraint import (
    ConstraintFit,
    DictionaryConstraint,
    Equation,
    LearnedConstraint,
    Library,
    NormalSpace,
)
from offmap.constraint.learned import Row
from offmap.dynamics import Dynamics, reduced_inputs, targets
from offmap.features import Features
from offmap.gp.expansion import Scaling
from offmap.gp.kernels import kernel_named
from offmap.gp.posterior import condition
from offmap.mlp import MLPConfig, fit_mlp
from offmap.model import Model
from offmap.predictor import Predictor
from offmap.pseudometric import Pseudometric, Reduction, retained_inputs
from offmap.summary import Choices
from offmap.systems import unicycle
from offmap.tangent import tangent_frame

RNG = np.random.default_rng(0)
X, U = RNG.uniform(-4, 4, (7, 3)), RNG.uniform(0, 1, (7, 2))


def drive(seed, source="offline"):
    system, rng = unicycle(), np.random.default_rng(seed)
    u = rng.uniform([-0.2, 0.0], [0.2, 1.5], (15, 2))
    x = [rng.uniform([-5, -5, -1], [5, 5, 1])]
    for control in u:
        x.append(x[-1] + system.dt * np.asarray(system.f(jnp.asarray(x[-1]), jnp.asarray(control))))
    return offmap.Trajectory(np.array(x), u, dt=system.dt, source=source)


@pytest.fixture(scope="module")
def data():
    return offmap.Dataset([drive(k) for k in range(6)], ["px", "py", "θ"], ["ω", "v"], ["θ"])


def conditioned(name, inputs, outputs, controls=()):
    """GPs at fixed hyperparameters: what a file holds does not depend on how they were found."""
    kernel = kernel_named(name, inputs.shape[1], controls)
    kernel = jax.tree.map(lambda leaf: jnp.stack([leaf] * outputs.shape[1]), kernel)
    noise = jnp.full(outputs.shape[1], 1e-6)
    scaling = Scaling.of(inputs, outputs)
    return condition(kernel, noise, scaling, jnp.asarray(inputs), jnp.asarray(outputs))


@pytest.fixture(scope="module")
def rows(data):
    """The paper's representation: retained inputs, and one GP per entry of Γ̂."""
    samples, names = data.samples(), data.input_names
    metric = Pseudometric(
        jnp.diag(jnp.array([0.0, 0.01, 1.0, 0.5, 0.7])), jnp.ones(5), jnp.ones(3), True, names
    )
    reduction = retained_inputs(metric, 0.05)
    inputs = reduced_inputs(samples, reduction)
    world = Dynamics(reduction, conditioned("rbf+linear", inputs, samples.xdot))
    theta = samples.x[::3, 2]
    labels = np.stack([np.sin(theta), -np.cos(theta), 0 * theta, 0 * theta], axis=1)
    heading = Reduction(jnp.eye(3)[2:], ("θ",))
    row = Row(heading, conditioned("rbf", theta[:, None], labels), "rbf")
    gamma = LearnedConstraint((row,))
    space = NormalSpace(samples.x[::3], labels[:, None], np.array([3.0, 1.0, 0.5, 1e-9]))
    fit = ConstraintFit(gamma, space, labels[:, None], [metric], (("θ",),))
    return Model(
        Predictor(world, gamma),
        world,
        Config.preset("default"),
        data,
        "offline",
        metric,
        fit,
        Choices({}, {}),
        7,
    )


@pytest.fixture(scope="module")
def model(rows):
    """The default representation: an equation, and dynamics in its tangent frame."""
    samples, names = rows.dataset.samples(), rows.dataset.input_names
    weights = np.zeros((1, 6, 4))
    weights[0, 4, 0], weights[0, 5, 1] = 1.0, -1.0
    gamma = DictionaryConstraint(Library(rows.dataset.state_names, (2,)), jnp.asarray(weights))
    frame = tangent_frame(gamma, samples.x, (2,))
    reduction = Reduction.everything(names, Features(names, (2,)))
    inputs, outputs = reduced_inputs(samples, reduction), targets(samples, frame)
    gps = conditioned("affine", inputs, outputs, reduction.rows_of(range(3, 5)))
    equation = Equation("sin(θ)·px' − cos(θ)·py' = 0", 0.01, in_noise=True)
    return replace(
        rows,
        predictor=Predictor(Dynamics(reduction, gps, frame), gamma),
        constraint_fit=replace(rows.constraint_fit, gamma=gamma, equations=(equation,)),
        choices=Choices({"affine": 1e-3, "rbf": np.inf}, {"none": 0.1, "tangent": 0.01}, "tangent"),
    )


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "robot.offmap"
    model.save(path)
    return path


def assert_same(a, b):
    """Equal structure and equal bits everywhere."""
    a, b = ((m.predictor, m.world, m.pseudometric) for m in (a, b))
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert one.dtype == other.dtype
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_predictions_rollouts_and_summary_are_identical(model, saved):
    loaded = offmap.load(saved)
    assert_same(model, loaded)
    for one, other in zip(
        model.predict(X, U, return_std=True), loaded.predict(X, U, return_std=True), strict=True
    ):
        assert one.tobytes() == other.tobytes()
    assert model.rollout(X[0], U).tobytes() == loaded.rollout(X[0], U).tobytes()
    assert model.summary() == loaded.summary()
    assert loaded.config == model.config
    assert loaded.retained == model.retained


def test_a_loaded_model_is_still_a_compiled_differentiable_vector_field(model, saved):
    loaded = offmap.load(saved)
    x, u = jnp.asarray(X), jnp.asarray(U)
    np.testing.assert_allclose(jax.jit(jax.vmap(loaded))(x, u), model.predict(X, U), rtol=1e-12)
    free, expected = loaded.with_constraint(None), model.with_constraint(None)
    gradient = jax.jit(jax.grad(lambda x: free(x, u[0]).sum()))(x[0])
    step = 1e-5 * np.eye(3)
    difference = expected.predict(X[0] + step, U[0]) - expected.predict(X[0] - step, U[0])
    np.testing.assert_allclose(gradient, difference.sum(axis=1) / 2e-5, rtol=1e-5, atol=1e-8)


def test_updates_after_loading_are_identical(model, saved):
    more = drive(9, source="online")
    one, other = model.update(more), offmap.load(saved).update(more)
    assert_same(one, other)
    assert one.predict(X, U).tobytes() == other.predict(X, U).tobytes()
    assert [t.source for t in other.dataset] == [t.source for t in one.dataset]


@pytest.mark.parametrize("kind", ["rows", "plain", "light", "soft", "networks"])
def test_every_representation_survives(model, rows, tmp_path, kind):
    if kind == "networks":
        samples, own = model.dataset.samples(), model.world
        z, y = reduced_inputs(samples, own.reduction), targets(samples, None)
        short = MLPConfig(members=2, width=4, steps=3)
        networks = fit_mlp(z, y, samples.source, key=jax.random.key(0), config=short)
        world = Dynamics(own.reduction, networks)
        config = replace(model.config, dynamics=short)
        chosen = replace(model, predictor=Predictor(world, None), world=world, config=config)
    else:
        chosen = {
            "rows": rows,
            "plain": model.with_constraint(None),
            "light": model.mean_only(),
            "soft": rows.with_constraint(
                rows.predictor.gamma, rows.constraint_fit, jnp.array([0.1])
            ),
        }[kind]
    chosen.save(tmp_path / "m")
    loaded = offmap.load(tmp_path / "m")
    assert_same(chosen, loaded)
    assert chosen.predict(X, U).tobytes() == loaded.predict(X, U).tobytes()
    assert chosen.summary() == loaded.summary()


def test_what_was_shared_stays_shared_and_is_written_once(rows, tmp_path):
    rows.save(tmp_path / "m")
    loaded = offmap.load(tmp_path / "m")
    assert loaded.world is loaded.predictor.dynamics
    assert loaded.constraint_fit.gamma is loaded.predictor.gamma
    with safe_open(tmp_path / "m", framework="numpy") as file:
        names = list(file.keys())
    assert not any("world.regressor" in name for name in names)
    assert (tmp_path / "m").stat().st_mode & 0o040  # readable as other files are


def test_a_known_constraint_cannot_be_saved_but_its_dynamics_can(model, tmp_path):
    def gamma(x):
        return jnp.array([[jnp.sin(x[2]), -jnp.cos(x[2]), 0.0, 0.0]])

    known = model.with_constraint(gamma)
    with pytest.raises(ValueError, match=r"gamma is a function.*with_constraint\(None\)"):
        known.save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []
    known.with_constraint(None).save(tmp_path / "m")
    again = offmap.load(tmp_path / "m").with_constraint(gamma)
    assert again.predict(X, U).tobytes() == known.predict(X, U).tobytes()


def test_saving_replaces_the_file_at_once_or_leaves_it(model, saved, tmp_path, monkeypatch):
    path = tmp_path / "robot.offmap"
    model.mean_only().save(path)
    before = path.read_bytes()

    def fail(tensors, filename, metadata):
        filename.write_bytes(b"half")
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "save_file", fail)
        with pytest.raises(OSError, match="disk full"):
            model.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    model.save(path)
    assert path.read_bytes() == saved.read_bytes()
    with pytest.raises(FileNotFoundError, match="folder that exists"):
        model.save(tmp_path / "missing" / "robot.offmap")


def rewritten(saved, path, change):
    """The saved file with another header, its checksum made right again."""
    with safe_open(saved, framework="numpy") as file:
        header = json.loads(file.metadata()["offmap"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(header, header["structure"])
    header["sha256"] = storage._digest(header["structure"], tensors)
    save_file(tensors, path, {"offmap": json.dumps(header)})
    return path


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.999])
def test_a_truncated_file_is_refused(saved, tmp_path, share):
    content = saved.read_bytes()
    (tmp_path / "m").write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match="not a whole offmap model file"):
        offmap.load(tmp_path / "m")


def test_foreign_missing_and_newer_files_are_refused(saved, tmp_path):
    (tmp_path / "text").write_text("t,x,u\n0,1,2\n" * 100)
    with pytest.raises(ValueError, match="not a whole offmap model"):
        offmap.load(tmp_path / "text")
    save_file({"weights": np.zeros(3)}, tmp_path / "other")
    with pytest.raises(ValueError, match="not an offmap model"):
        offmap.load(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match="must exist"):
        offmap.load(tmp_path / "nowhere")
    later = storage.VERSION + 1
    newer = rewritten(saved, tmp_path / "new", lambda meta, _: meta.update(version=later))
    with pytest.raises(ValueError, match="newer offmap"):
        offmap.load(newer)


def test_any_flipped_byte_is_noticed(saved, tmp_path):
    content = saved.read_bytes()
    for place in np.random.default_rng(1).integers(0, len(content), 40):
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        (tmp_path / "m").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"damaged|not a whole|not an offmap|newer"):
            offmap.load(tmp_path / "m")


def test_only_registered_classes_are_built(saved, tmp_path):
    def foreign(_, structure):
        structure["objects"][0]["class"] = "Popen"

    def extra(_, structure):
        structure["objects"][-1]["fields"]["shell"] = True

    def lacking(_, structure):
        del structure["objects"][-1]["fields"]["predictor"]

    def cyclic(_, structure):
        structure["objects"][0]["fields"] = {"x": {"object": len(structure["objects"]) - 1}}

    def other_root(_, structure):
        structure["root"] = {"object": 0}

    for change, message in (
        (foreign, "no class 'Popen'"),
        (extra, "has no shell"),
        (lacking, "needs 'predictor'"),
        (cyclic, "expects"),
        (other_root, "instead of a model"),
    ):
        with pytest.raises(ValueError, match=message):
            offmap.load(rewritten(saved, tmp_path / "m", change))


def test_a_field_that_a_later_version_added_takes_its_default(model, saved, tmp_path):
    def older(_, structure):
        for entry in structure["objects"]:
            if entry["class"] == "Choices":
                del entry["fields"]["disagreement"]

    loaded = offmap.load(rewritten(saved, tmp_path / "m", older))
    assert loaded.choices.disagreement == ""
    assert loaded.predict(X, U).tobytes() == model.predict(X, U).tobytes()


def test_loading_fits_nothing(saved, monkeypatch):
    for room in ("gp", "gp.fit", "dynamics", "model", "constraint.learned", "pseudometric"):
        module = importlib.import_module(f"offmap.{room}")
        for name in vars(module):
            if name.startswith(("fit_", "choose_", "learn_")):
                monkeypatch.setattr(module, name, None)
    assert offmap.load(saved).predict(X, U).shape == X.shape


def test_every_module_of_the_pipeline_is_registered():
    """A new kernel, constraint or dynamics that is not listed in storage.py fails here."""
    for found in pkgutil.walk_packages(offmap.__path__, "offmap."):
        if not found.name.startswith(("offmap.paper", "offmap.cli", "offmap.report")):
            importlib.import_module(found.name)

    def subclasses(cls):
        for child in cls.__subclasses__():
            yield child
            yield from subclasses(child)

    modules = {
        cls
        for cls in subclasses(eqx.Module)
        if cls.__module__.startswith("offmap.") and not cls.__name__.startswith(("Abstract", "_"))
    }
    assert offmap.gp.kernels.RBF in modules
    assert modules - set(storage._CLASSES.values()) == set()
    assert all(dataclasses.is_dataclass(cls) for cls in storage._CLASSES.values())
