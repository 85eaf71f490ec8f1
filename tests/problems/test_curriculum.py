"""The curriculum holds the target, follows the learner, and comes to rest."""

import json
import math
import random
import statistics
from collections import deque
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.problems.curve import Curve, fit_curve
from reasoning_gym_environment.problems.levels import (
    Curriculum,
    RandomLevels,
    curriculum_metrics,
)

TARGET = 0.7
GROUP = 8

Solves = Callable[[int], float]
"""A learner: level to the probability of solving it."""


def of_height(height: int, target: float = TARGET) -> Curriculum:
    return Curriculum({"gcd": ({},) * height}, target)


def position(curriculum: Curriculum) -> float:
    level: float = curriculum.stats()["task_details"]["gcd"]["level"]
    return level


def logistic(ability: float, slope: float = 2.0) -> Solves:
    return lambda level: 1 / (1 + math.exp(-slope * (ability - level)))


def train(
    curriculum: Curriculum,
    solves: Solves,
    groups: int,
    *,
    in_flight: int = 0,
    seed: int = 1,
) -> list[float]:
    """Return the position after each group."""
    rng = random.Random(seed)
    flying: deque[int] = deque()
    positions = []
    for _ in range(groups):
        while len(flying) <= in_flight:
            level = curriculum.level("gcd", rng.random())
            assert level is not None
            flying.append(level)
        level = flying.popleft()
        solved = sum(rng.random() < solves(level) for _ in range(GROUP))
        curriculum.report_result("gcd", level, solved=solved, scored=GROUP)
        positions.append(position(curriculum))
    return positions


def share(solves: Solves, place: float) -> float:
    lower = int(place)
    return (1 - place % 1) * solves(lower) + (place % 1) * solves(lower + 1)


def test_a_task_starts_in_the_middle_of_its_ladder() -> None:
    assert position(of_height(4)) == 1.5


@pytest.mark.parametrize("in_flight", [0, 8, 64])
@pytest.mark.parametrize(
    ("height", "solves"),
    [
        (4, logistic(2.7)),
        (4, logistic(1.2, slope=3.0)),
        (3, logistic(1.5, slope=1.0)),
        (10, logistic(2.0, slope=0.8)),
        (36, logistic(30.0, slope=0.2)),
    ],
)
def test_the_target_is_held(height: int, solves: Solves, in_flight: int) -> None:
    places = train(of_height(height), solves, 400, in_flight=in_flight)[-200:]
    errors = [share(solves, place) - TARGET for place in places]
    assert abs(sum(errors)) / len(errors) < 0.05
    assert sum(abs(error) < 0.1 for error in errors) / len(errors) > 0.8


@pytest.mark.parametrize("target", [0.3, 0.5, 0.9])
def test_any_target_can_be_held(target: float) -> None:
    solves = logistic(2.0)
    places = train(of_height(5, target), solves, 400)[-200:]
    assert sum(share(solves, place) for place in places) / 200 == pytest.approx(
        target, abs=0.05
    )


@pytest.mark.parametrize(("solved", "end"), [(GROUP, 35.0), (0, 0.0)])
def test_it_moves_fast_when_far_from_the_target(solved: int, end: float) -> None:
    places = train(of_height(36), lambda level: solved / GROUP, 5)
    assert places[-1] == end


def test_it_stays_at_the_ends() -> None:
    for solves, end in ((lambda level: 1.0, 3.0), (lambda level: 0.0, 0.0)):
        places = train(of_height(4), solves, 100)
        assert set(places[10:]) == {end}


def test_it_does_not_move_near_the_target() -> None:
    curriculum = of_height(4)
    for _ in range(50):
        for level, solved in ((1, 7), (2, 4)):  # 0.6875 in the middle between them
            curriculum.report_result("gcd", level, solved=solved, scored=GROUP)
    moves = [
        curriculum.report_result("gcd", level, solved=solved, scored=GROUP)
        for _ in range(50)
        for level, solved in ((1, 7), (2, 4))
    ]
    assert moves == [None] * 100


def test_it_follows_a_learner_that_improves_or_degrades() -> None:
    curriculum = of_height(10)
    for ability in (2.0, 7.0, 2.0):
        places = train(curriculum, logistic(ability), 15)
        # Log-odds of 0.7, halved.
        assert places[-1] == pytest.approx(ability - 0.42, abs=0.75)


@given(st.integers(2, 12), st.lists(st.integers(0, GROUP), max_size=40))
def test_results_from_other_levels_move_nothing(
    height: int, results: list[int]
) -> None:
    curriculum = of_height(height)
    while position(curriculum) < height - 1:
        curriculum.report_result(
            "gcd", math.ceil(position(curriculum)), solved=8, scored=8
        )
    for solved in results:
        for level in range(height - 1):
            assert (
                curriculum.report_result("gcd", level, solved=solved, scored=GROUP)
                is None
            )
    assert position(curriculum) == height - 1
    assert curriculum.stats()["task_details"]["gcd"]["solved_share"] in (None, 1.0)


def test_a_fresh_result_after_a_move_can_move_it_again() -> None:
    curriculum = of_height(36)
    moves = [
        curriculum.report_result(
            "gcd", math.ceil(position(curriculum)), solved=solved, scored=8
        )
        for solved in (8, 0, 8)
    ]
    assert all(moves)


def cliff(level: int) -> float:
    return float(level <= 2)


@pytest.mark.parametrize(("in_flight", "wander"), [(0, 0.1), (64, 0.3)])
@pytest.mark.parametrize("seed", range(3))
def test_it_comes_to_rest_between_two_levels(
    seed: int, in_flight: int, wander: float
) -> None:
    """All answers are right at one level and wrong at the next, the hardest case."""
    places = train(of_height(6), cliff, 2000, in_flight=in_flight, seed=seed)[-1000:]
    assert statistics.mean(places) == pytest.approx(2.25, abs=0.1)
    assert statistics.stdev(places) < wander
    assert sum(before != after for before, after in pairwise(places)) < 200


results = st.lists(st.tuples(st.integers(0, 5), st.integers(0, GROUP)), max_size=60)


@given(st.integers(1, 6), st.floats(0.1, 0.9), results)
def test_it_never_leaves_the_ladder(
    height: int, target: float, results: list[tuple[int, int]]
) -> None:
    curriculum = of_height(height, target)
    for level, solved in results:
        curriculum.report_result(
            "gcd", min(level, height - 1), solved=solved, scored=GROUP
        )
        assert 0 <= position(curriculum) <= height - 1


@given(results, results)
def test_a_stored_state_continues_exactly(
    before: list[tuple[int, int]], after: list[tuple[int, int]]
) -> None:
    curriculum, resumed = of_height(6), of_height(6)
    for level, solved in before:
        curriculum.report_result("gcd", level, solved=solved, scored=GROUP)
    resumed.load_state_dict(json.loads(json.dumps(curriculum.state_dict())))
    assert resumed.stats() == curriculum.stats()
    for level, solved in after:
        moves = [
            c.report_result("gcd", level, solved=solved, scored=GROUP)
            for c in (curriculum, resumed)
        ]
        assert moves[0] == moves[1]
    assert resumed.state_dict() == curriculum.state_dict()


def test_a_changed_ladder_keeps_the_difficulty_and_unknown_tasks_are_ignored() -> None:
    old = Curriculum({"gcd": ({},) * 5, "gone": ({},) * 3})
    train(old, lambda level: 1.0, 10)
    state = json.loads(json.dumps(old.state_dict()))
    new = Curriculum({"gcd": ({},) * 9, "new": ({},) * 3})
    new.load_state_dict(state)
    assert new.stats()["task_details"]["gcd"]["level"] == 8
    assert new.stats()["task_details"]["gcd"]["solved_share"] is None
    assert new.stats()["task_details"].keys() == {"gcd", "new"}


def test_a_state_from_another_mode_is_ignored() -> None:
    curriculum = of_height(4)
    curriculum.load_state_dict(RandomLevels({"gcd": ({},) * 4}).state_dict())
    assert position(curriculum) == 1.5


def test_a_result_without_a_level_is_ignored() -> None:
    curriculum = of_height(4)
    assert curriculum.report_result("gcd", None, solved=8, scored=8) is None
    assert curriculum.state_dict() == of_height(4).state_dict()


def test_a_move_describes_itself() -> None:
    move = of_height(3).report_result("gcd", 1, solved=8, scored=8)
    assert move == "gcd: level 1.00 -> 1.78 of 2 (0.93 solved, target 0.70)"


def test_stats_have_every_tasks_position() -> None:
    curriculum = Curriculum({"gcd": ({},) * 5, "lcm": ({},) * 3, "flat": ({},)})
    for _ in range(10):
        curriculum.report_result("gcd", 4, solved=8, scored=8)
        curriculum.report_result(
            "gcd", math.ceil(position(curriculum)), solved=8, scored=8
        )
    stats = curriculum.stats()
    assert stats["total_tasks_tracked"] == 3
    assert stats["tasks_with_adjustments"] == 1
    assert stats["average_complexity"] == pytest.approx((1.0 + 0.5) / 2)
    details = stats["task_details"]["gcd"]
    assert (details["level"], details["height"], details["difficulty"]) == (4, 5, 1.0)
    assert details["solved_share"] == 1.0
    assert details["groups"] + details["stale_groups"] == 20
    assert details["adjustments"] > 0
    assert stats["task_details"]["lcm"]["solved_share"] is None
    assert json.loads(json.dumps(stats)) == stats


def test_metrics_are_of_each_task_and_means_of_the_tasks_that_can_move() -> None:
    curriculum = Curriculum({"gcd": ({},) * 5, "maze": ({},) * 3, "flat": ({},)})
    for level in (2, 3):
        curriculum.report_result("gcd", level, solved=6, scored=8)
    stats = curriculum.stats() | {"target_accuracy": 0.6}
    signals = {"gcd": 0.75, "maze": 0.25, "flat": None}
    for task, details in stats["task_details"].items():
        details["expected_signal"] = signals[task]
    categories = {"gcd": "arithmetic", "maze": "games", "flat": "arithmetic"}
    gcd = stats["task_details"]["gcd"]
    assert gcd["level"] > 2
    assert curriculum_metrics(stats, categories) == {
        "curriculum/total_tasks_tracked": 3,
        "curriculum/tasks_with_adjustments": 1,
        "curriculum/target_accuracy": 0.6,
        "curriculum/avg_complexity": (gcd["difficulty"] + 0.5) / 2,
        "curriculum/min_complexity": 0.5,
        "curriculum/max_complexity": gcd["difficulty"],
        "curriculum/avg_recent_accuracy": 0.75,
        "curriculum/avg_expected_signal": 0.5,
        "curriculum/category/arithmetic/difficulty": gcd["difficulty"],
        "curriculum/category/games/difficulty": 0.5,
        "curriculum/task/gcd/level": gcd["level"],
        "curriculum/task/maze/level": 1,
        "curriculum/task/flat/level": 0,
        "curriculum/task/gcd/difficulty": gcd["difficulty"],
        "curriculum/task/maze/difficulty": 0.5,
        "curriculum/task/gcd/recent_accuracy": 0.75,
        "curriculum/task/gcd/expected_signal": 0.75,
        "curriculum/task/maze/expected_signal": 0.25,
    }


def test_metrics_leave_out_what_no_task_has_yet() -> None:
    stats = Curriculum({"flat": ({},)}).stats() | {"target_accuracy": 0.6}
    stats["task_details"]["flat"]["expected_signal"] = None
    assert curriculum_metrics(stats, {"flat": "games"}) == {
        "curriculum/total_tasks_tracked": 1,
        "curriculum/tasks_with_adjustments": 0,
        "curriculum/target_accuracy": 0.6,
        "curriculum/avg_complexity": 0,
        "curriculum/min_complexity": 0,
        "curriculum/max_complexity": 0,
        "curriculum/task/flat/level": 0,
    }


heights = st.integers(2, 36)
targets = st.floats(0.05, 0.95)


def sigmoid(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))


@given(heights, targets)
def test_the_prior_expects_the_target_mid_ladder(height: int, target: float) -> None:
    curve = fit_curve({}, height, target)
    assert curve.at_level((height - 1) / 2) == pytest.approx(target)


@given(st.floats(-1.0, 1.0), st.floats(0.7, 1.5), heights)
def test_much_evidence_outweighs_the_prior(
    shift: float, steepness: float, height: int
) -> None:
    slope = steepness * min(2.0, 6 / (height - 1))
    shares = {
        level: sigmoid(shift + slope * ((height - 1) / 2 - level))
        for level in range(height)
    }
    evidence = {level: (10_000 * share, 10_000.0) for level, share in shares.items()}
    curve = fit_curve(evidence, height, 0.7)
    assert curve.slope == pytest.approx(slope, rel=0.02)
    assert [curve.at_level(level) for level in shares] == pytest.approx(
        [*shares.values()], abs=0.01
    )


answered = st.floats(0.1, 100.0)
evidence = st.dictionaries(
    st.integers(0, 9),
    st.tuples(st.sampled_from([0.0, 0.3, 1.0]), answered).map(
        lambda e: (e[0] * e[1], e[1])
    ),
)


@given(evidence, targets)
def test_harder_levels_are_never_solved_more_often(
    evidence: dict[int, tuple[float, float]], target: float
) -> None:
    curve = fit_curve(evidence, 10, target)
    shares = [curve.at_level(level) for level in range(10)]
    assert shares == sorted(shares, reverse=True)
    assert math.isfinite(curve.log_odds)


@given(evidence, targets, st.integers(1, 9))
def test_the_curve_has_the_target_at_its_position(
    evidence: dict[int, tuple[float, float]], target: float, top: int
) -> None:
    curve = fit_curve(evidence, 10, target)
    position = curve.position(target, top)
    assert 0 <= position <= top
    if 0 < position < top:
        assert curve.at(position) == pytest.approx(target, abs=1e-6)
    else:
        assert (
            (curve.at(0) <= target + 1e-6)
            if position == 0
            else curve.at(top) >= target - 1e-6
        )


def test_between_levels_the_share_is_interpolated() -> None:
    curve = Curve(middle=1.0, log_odds=0.0, slope=2.0)
    mixed = 0.75 * curve.at_level(1) + 0.25 * curve.at_level(2)
    assert curve.at(1.25) == pytest.approx(mixed)
    assert curve.at(2.0) == curve.at_level(2)
