"""Many logs: stacking, names, angles, sources, and what a fit refuses."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offmap.data import Dataset, Samples, Trajectory


def run(steps, seed=0, n=3, m=2, **options):
    rng = np.random.default_rng(seed)
    return Trajectory(rng.normal(size=(steps + 1, n)), rng.normal(size=(steps, m)), **options)


def turning(steps=200, wrapped=True, **options):
    """A run whose second state turns several times, the first being something else."""
    theta = np.linspace(-2.0, 15.0, steps + 1)
    angle = np.angle(np.exp(1j * theta)) if wrapped else theta
    return Trajectory(np.stack([np.sin(theta), angle], axis=1), np.ones((steps, 1)), **options)


def assert_three_parts(message, rule, received, remedy):
    position = message.index("; received")
    assert rule in message[:position]
    assert received in message[position:]
    assert remedy in message[position:]


def test_ragged_trajectories_stack_in_order():
    short = run(2, seed=1, source="online")
    without_last_state = Trajectory(np.arange(12.0).reshape(4, 3), np.ones((4, 2)))
    logs = [run(5), short, without_last_state]
    samples = Dataset(logs).samples()
    parts = [log.samples() for log in logs]
    assert isinstance(samples, Samples)
    assert len(samples) == 5 + 2 + 3
    for k, table in enumerate((samples.x, samples.u, samples.xdot)):
        np.testing.assert_array_equal(table, np.concatenate([part[k] for part in parts]))
    np.testing.assert_array_equal(samples.trajectory, [0] * 5 + [1] * 2 + [2] * 3)
    np.testing.assert_array_equal(samples.source, [0] * 5 + [1] * 2 + [0] * 3)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    sources=st.lists(st.sampled_from(["offline", "online", "test"]), min_size=5, max_size=5),
)
def test_each_sample_points_back_to_its_trajectory_and_source(lengths, sources):
    logs = [run(T, seed=k, source=sources[k]) for k, T in enumerate(lengths)]
    dataset = Dataset(logs)
    samples = dataset.samples()
    assert len(samples) == sum(lengths)
    for k, log in enumerate(logs):
        mine = samples.trajectory == k
        np.testing.assert_array_equal(samples.u[mine], log.u)
        assert {dataset.sources[code] for code in samples.source[mine]} == {log.source}
    assert sum(len(dataset.select(s).samples()) for s in dataset.sources) == len(samples)


def test_samples_are_cached_and_read_only():
    dataset = Dataset([run(4)])
    samples = dataset.samples()
    assert dataset.samples() is samples
    for field in dataclasses.fields(samples):
        with pytest.raises(ValueError, match="read-only"):
            getattr(samples, field.name)[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        dataset.angles = ()


def test_defaults_and_sizes():
    dataset = Dataset([run(4, dt=0.2), run(3, seed=1, dt=0.2 * (1 + 1e-7))])
    assert (dataset.n, dataset.m, dataset.dt, len(dataset)) == (3, 2, 0.2, 2)
    assert dataset.input_names == ("x0", "x1", "x2", "u0", "u1")
    assert (dataset.angles, dataset.angle_indices) == ((), ())
    assert list(dataset) == list(dataset.trajectories)
    assert isinstance(dataset.trajectories, tuple)
    assert "2 trajectories" in repr(dataset)


def test_names_and_angles_by_name_or_index():
    names = ["px", "py", "theta"]
    for angles in (["theta"], (2,), np.array([2]), ["theta", 2]):
        dataset = Dataset([run(4)], names, ["omega", "v"], angles=angles)
        assert dataset.input_names == ("px", "py", "theta", "omega", "v")
        assert (dataset.angles, dataset.angle_indices) == (("theta",), (2,))


def test_wrapped_log_with_declared_angle_has_the_derivatives_of_the_unwrapped_one():
    wrapped = Dataset([turning()], angles=["x1"]).samples()
    unwrapped = Dataset([turning(wrapped=False)]).samples()
    np.testing.assert_allclose(wrapped.xdot, unwrapped.xdot, atol=1e-10)
    assert np.abs(wrapped.x[:, 1]).max() <= np.pi


def test_select_and_append_return_new_datasets_with_the_same_names():
    logs = [run(4), run(3, seed=1, source="online"), run(2, seed=2)]
    dataset = Dataset(logs, ["a", "b", "c"], ["v", "w"], angles=["c"])
    offline = dataset.select("offline")
    assert offline.trajectories == (logs[0], logs[2])
    assert (offline.sources, dataset.sources) == (("offline",), ("offline", "online"))
    extended = offline.append(logs[1])
    assert extended.trajectories == (logs[0], logs[2], logs[1])
    assert len(offline) == 2
    assert extended.input_names == dataset.input_names
    assert extended.angles == ("c",)
    assert len(extended.samples()) == 9


def test_append_checks_the_newcomer():
    with pytest.raises(ValueError, match=r"states; received 2 in trajectory 1 and 3 in"):
        Dataset([run(4)]).append(run(4, n=2))


def test_select_of_an_unknown_source_names_the_nearest():
    with pytest.raises(ValueError) as error:
        Dataset([run(4), run(4, seed=1, source="online")]).select("onlin")
    assert_three_parts(
        str(error.value), "['offline', 'online']", "'onlin'", "did you mean 'online'"
    )


ABC = ["a", "b", "theta"]


@pytest.mark.parametrize(
    ("logs", "options", "rule", "received", "remedy"),
    [
        ([], {}, "at least one Trajectory", "received []", "give a list"),
        (run(4), {}, "sequence of", "received Trajectory(T=4", "give a list"),
        ([run(4), "log.csv"], {}, "sequence of", "'log.csv' as item 1", "give a list"),
        ([run(4), run(4, n=2)], {}, "same number of states", "2 in trajectory 1", "share"),
        ([run(4), run(4), run(4, m=1)], {}, "of controls", "1 in trajectory 2 and 2", "share"),
        (
            [run(4), run(4, dt=0.10001)],
            {},
            "same dt",
            "0.10001 in trajectory 1 and 0.1",
            "resample",
        ),
        ([run(4)], dict(state_names=["a"]), "state_names must be 3", "['a']", "leave state_names"),
        ([run(4)], dict(state_names="abc"), "state_names must be 3", "'abc'", "name each column"),
        ([run(4)], dict(state_names=["a", "b", 3]), "non-empty strings", "3]", "name each column"),
        ([run(4)], dict(control_names=["v", ""]), "control_names must be 2", "['v', '']", "u0, u1"),
        ([run(4)], dict(control_names=5), "control_names must be 2", "received 5", "u0, u1"),
        ([run(4)], dict(state_names=["a", "b", "a"]), "must all differ", "['a'] more", "rename"),
        ([run(4)], dict(state_names=["u0", "b", "c"]), "must all differ", "['u0']", "rename"),
        (
            [run(4)],
            dict(state_names=ABC, angles=["teta"]),
            "['a', 'b', 'theta']",
            "'teta'",
            "'theta'?",
        ),
        ([run(4)], dict(angles=["qqqq"]), "state columns", "'qqqq'", "use one of those"),
        ([run(4)], dict(angles=[3]), "index 0 to 2", "received 3", "use one of those"),
        ([run(4)], dict(angles=[-1]), "index 0 to 2", "received -1", "use one of those"),
        ([run(4)], dict(angles=[True]), "state columns", "received True", "use one of those"),
        ([run(4)], dict(angles=["u0"]), "state columns", "received 'u0'", "use one of those"),
        ([run(4)], dict(angles="x0"), "sequence of state names", "'x0'", "give a list"),
    ],
)
def test_what_is_refused_and_what_is_said(logs, options, rule, received, remedy):
    with pytest.raises(ValueError) as error:
        Dataset(logs, **options)
    assert_three_parts(str(error.value), rule, received, remedy)


def test_an_undeclared_wrapped_angle_is_pointed_out():
    logs = [turning(wrapped=False), turning()]
    with pytest.warns(UserWarning) as caught:
        Dataset(logs, state_names=["s", "theta"])
    jumps = np.abs(np.diff(logs[1].x[:, 1])) > 6.0
    (warning,) = caught
    message = str(warning.message)
    assert message.startswith("state 'theta' looks like a wrapped angle")
    assert f"trajectory 1 jumps by about 2 pi at {jumps.sum()} of 200 steps" in message
    assert f"first after row {jumps.argmax()};" in message
    assert message.endswith("declare it with angles=['theta']")


@pytest.mark.filterwarnings("error")
def test_no_warning_for_declared_smooth_or_generally_fast_columns():
    Dataset([turning()], angles=[1])
    Dataset([turning(wrapped=False)])
    strides = np.cumsum(np.full((20, 1), 2.0 * np.pi), axis=0)
    Dataset([Trajectory(strides, np.ones((19, 1)))])


@pytest.mark.filterwarnings("error")
def test_check_inputs_accepts_varied_logs():
    Dataset([run(4), run(5, seed=1)]).check_inputs()


def test_check_inputs_names_constant_columns():
    log = run(20)
    x, u = np.array(log.x), np.array(log.u)
    x[:, 1], u[:, 0] = 0.3, 0.0
    dataset = Dataset([Trajectory(x, u)], ["px", "py", "theta"], ["v", "w"])
    with pytest.raises(ValueError) as error:
        dataset.check_inputs()
    assert_three_parts(str(error.value), "must vary", "constant 'py' = 0.3, 'v' = 0;", "drop these")
    assert "nothing can be learned" in str(error.value)


def test_a_column_constant_within_each_run_but_not_across_them_is_fine():
    logs = []
    for k in range(2):
        u = np.array(run(10, seed=k).u)
        u[:, 0] = k
        logs.append(Trajectory(run(10, seed=k).x, u))
    Dataset(logs).check_inputs()


def test_check_inputs_needs_two_samples_more_than_inputs():
    Dataset([run(7)]).check_inputs()
    with pytest.raises(ValueError) as error:
        Dataset([run(6)]).check_inputs()
    assert_three_parts(str(error.value), "at least 7 samples", "received 6", "add trajectories")


def test_check_inputs_refuses_a_trajectory_given_twice():
    twin = Trajectory(run(9).x, run(9).u, source="online")
    with pytest.raises(ValueError) as error:
        Dataset([run(8), run(9), run(8, seed=2), twin]).check_inputs()
    message = str(error.value)
    assert_three_parts(message, "given once", "trajectory 3 with the same", "remove one")
    assert "as trajectory 1" in message


@pytest.mark.parametrize(("repeats", "warned"), [(2, False), (3, True)])
def test_check_inputs_warns_above_a_tenth_of_duplicate_rows(recwarn, repeats, warned):
    x, u = np.array(run(20).x), np.array(run(20).u)
    x[10 : 10 + repeats], u[10 : 10 + repeats] = x[4], u[4]
    Dataset([Trajectory(x, u)]).check_inputs()
    assert len(recwarn) == warned
    if warned:
        message = str(recwarn[0].message)
        assert_three_parts(message, "should differ", "3 of 20 rows", "thin out")
        assert "first at sample 10" in message


def test_appending_gives_the_samples_of_a_new_dataset():
    rng = np.random.default_rng(0)
    logs = [
        Trajectory(rng.normal(size=(6, 2)), rng.normal(size=(6, 1)), dt=0.1, source=source)
        for source in ("offline", "online", "offline")
    ]
    known = Dataset(logs[:2], angles=[1])
    known.samples()  # so that appending starts from what is known
    grown, fresh = known.append(logs[2]).samples(), Dataset(logs, angles=[1]).samples()
    for name in ("x", "u", "xdot", "source", "trajectory"):
        np.testing.assert_array_equal(getattr(grown, name), getattr(fresh, name))
        assert getattr(grown, name).dtype == getattr(fresh, name).dtype


def test_angles_in_degrees_are_refused_or_told():
    """A heading that jumps from 360 to 0, or turns more than once a step, is in degrees."""
    turning = np.arange(100) * 7.0
    u = np.zeros((100, 1))
    wrapped = Trajectory((turning % 360)[:, None], u, dt=0.1)
    with pytest.raises(ValueError, match=r"in radians; state 'x0' .* jumps by about 360 at 1 of"):
        Dataset([wrapped], angles=["x0"])
    with pytest.warns(UserWarning, match=r"about 360 .* convert it to radians"):
        Dataset([wrapped])
    with pytest.warns(UserWarning, match=r"up to 7 in one step, more than a turn"):
        Dataset([Trajectory(turning[:, None], u, dt=0.1)], angles=["x0"])
    Dataset([Trajectory(np.radians(turning)[:, None], u, dt=0.1)], angles=["x0"])
