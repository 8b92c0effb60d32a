"""The rule by which held-out data choose between candidates."""

import numpy as np

from offmap.gp.verdict import OF_DRIVES, level_with_best, root_mean

RNG = np.random.default_rng(0)
HARD = RNG.uniform(0.5, 1.5, size=12)  # how hard each held-out trajectory is


def test_a_difference_that_chance_explains_is_none() -> None:
    noisy = HARD * RNG.uniform(0.8, 1.25, size=12)
    errors = {"simple": noisy * HARD.mean() / noisy.mean() * 1.05, "best": HARD}
    assert level_with_best(errors, 0.0) == ("simple", "best")


def test_a_difference_on_every_trajectory_counts() -> None:
    assert level_with_best({"simple": 1.1 * HARD, "best": HARD}, 0.0) == ("best",)
    assert level_with_best({"simple": 1.01 * HARD, "best": HARD}, 0.0) == ("simple", "best")


def test_one_bad_trajectory_does_not_hide_a_large_difference() -> None:
    once = np.full(12, 1e-6)
    once[3] = 10.0
    assert level_with_best({"simple": once, "best": np.full(12, 1e-6)}, 0.0) == ("best",)


def test_below_the_floor_all_are_level() -> None:
    errors = {"simple": np.full(3, 1e-10), "best": np.full(3, 1e-20)}
    assert level_with_best(errors, 1e-4) == ("simple", "best")
    assert level_with_best(errors, 1e-8) == ("best",)


def test_a_single_group_has_no_standard_error() -> None:
    assert level_with_best({"a": np.array([1.2]), "b": np.array([1.0])}, 0.0) == ("b",)


def test_scores_are_root_mean_squares() -> None:
    assert root_mean({"a": np.array([9.0, 16.0])}) == {"a": np.sqrt(12.5)}


def test_of_few_drives_one_may_make_a_large_difference_that_is_chance() -> None:
    best = np.ones(6)
    once = best + 9 * (np.arange(6) == 0)  # 1.6 times the error, by one drive of six
    each = best + 1.5  # as much again, on every drive
    far = best + 60 * (np.arange(6) == 0)
    assert level_with_best({"simple": once, "best": best}, 0.0) == ("best",)
    for errors, right in ((once, ("simple", "best")), (each, ("best",)), (far, ("best",))):
        found = level_with_best({"simple": errors, "best": best}, 0.0, unsure=OF_DRIVES)
        assert found == right
