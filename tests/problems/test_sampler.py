"""The sampler is reproducible, resumable, and disjoint from every other stream."""

import json
import random
import re
import statistics
from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.problems.levels import Curriculum, RandomLevels
from reasoning_gym_environment.problems.sampler import (
    HALF_LIFE,
    Sampler,
    SignalEstimates,
)
from reasoning_gym_environment.problems.seeds import (
    evaluation_recipes,
    evaluation_seed,
    training_seed,
)
from reasoning_gym_environment.records import Recipe

TASKS = ("gcd", "lcm", "sudoku", "word_ladder")
SEED_LIMIT = 2**53

run_seeds = st.integers(-(2**63), 2**63)
replicas = st.text(st.characters(exclude_categories=["C"]), max_size=20)
tasks = st.sampled_from(TASKS)
weights = st.dictionaries(tasks, st.floats(0.01, 100.0), min_size=1)


def take(sampler: Sampler, count: int) -> list[Recipe]:
    return [sampler.next_recipe() for _ in range(count)]


def uniform(*, run_seed: int = 1, replica: str = "a") -> Sampler:
    return Sampler(dict.fromkeys(TASKS, 1.0), run_seed=run_seed, replica=replica)


@given(weights, run_seeds, replicas)
def test_the_same_settings_draw_the_same_recipes(
    weights: dict[str, float], run_seed: int, replica: str
) -> None:
    one = Sampler(weights, run_seed=run_seed, replica=replica)
    shuffled = dict(reversed(weights.items()))
    other = Sampler(shuffled, run_seed=run_seed, replica=replica)
    assert take(one, 20) == take(other, 20)


def test_the_first_recipes_are_the_same_on_every_machine_and_version() -> None:
    """Changing them breaks the resume of every stored checkpoint."""
    assert take(uniform(run_seed=42), 3) == [
        Recipe(task="lcm", seed=3578981594851724),
        Recipe(task="lcm", seed=2632147013545998),
        Recipe(task="lcm", seed=390057794337820),
    ]
    assert evaluation_seed(42, "gcd", 0) == 1258366488596521


@given(weights, run_seeds, replicas, st.integers(0, 30))
def test_a_stored_state_continues_the_stream_exactly(
    weights: dict[str, float], run_seed: int, replica: str, drawn: int
) -> None:
    uninterrupted = Sampler(weights, run_seed=run_seed, replica=replica)
    take(uninterrupted, drawn)
    state = json.loads(json.dumps(uninterrupted.state_dict()))
    resumed = Sampler(weights, run_seed=0, replica="another")
    resumed.load_state_dict(state)
    assert take(resumed, 20) == take(uninterrupted, 20)
    assert resumed.state_dict() == uninterrupted.state_dict()


def test_reading_the_state_draws_nothing() -> None:
    watched, other = uniform(), uniform()
    watched.state_dict()
    assert take(watched, 3) == take(other, 3)


@pytest.mark.parametrize(
    "key",
    ["run_seed", "replica", "draw", "levels", "signal", "solved_shares", "memory"],
)
def test_a_state_with_a_missing_key_is_refused(key: str) -> None:
    state = learning().state_dict()
    del state[key]
    with pytest.raises(KeyError, match=key):
        learning().load_state_dict(state)


def test_replicas_runs_and_evaluation_share_no_seed() -> None:
    streams = [
        [
            recipe.seed
            for recipe in take(uniform(run_seed=run_seed, replica=replica), 1000)
        ]
        for run_seed in (1, 2)
        for replica in ("0", "1", "10")
    ]
    streams += [
        [recipe.seed for recipe in evaluation_recipes(seed, TASKS, 250)]
        for seed in (1, 2)
    ]
    seeds = [seed for stream in streams for seed in stream]
    assert len(seeds) == len(set(seeds)) == 8000


@given(run_seeds, replicas, tasks, st.integers(0, 2**53))
def test_training_seeds_are_even_and_evaluation_seeds_odd(
    run_seed: int, replica: str, task: str, number: int
) -> None:
    training = training_seed(run_seed, replica, task, number)
    evaluation = evaluation_seed(run_seed, task, number)
    assert training % 2 == 0
    assert evaluation % 2 == 1
    assert 0 <= training < SEED_LIMIT
    assert 0 < evaluation < SEED_LIMIT


def test_seeds_spread_over_their_whole_range_and_are_not_adjacent() -> None:
    """On most tasks `seed + 1` is the same stream shifted by one."""
    seeds = sorted(training_seed(1, "a", "gcd", draw) for draw in range(1000))
    assert seeds[0] < SEED_LIMIT / 100
    assert seeds[-1] > SEED_LIMIT - SEED_LIMIT / 100
    assert min(after - before for before, after in pairwise(seeds)) > 1_000_000


def test_tasks_are_drawn_in_proportion_to_their_weights() -> None:
    sampler = Sampler({"gcd": 1.0, "lcm": 3.0, "sudoku": 4.0}, run_seed=7, replica="a")
    counts = Counter(recipe.task for recipe in take(sampler, 8000))
    assert counts["gcd"] == pytest.approx(1000, rel=0.1)
    assert counts["lcm"] == pytest.approx(3000, rel=0.05)
    assert counts["sudoku"] == pytest.approx(4000, rel=0.05)
    counts = Counter(recipe.task for recipe in take(uniform(), 8000))
    assert [counts[task] for task in TASKS] == [pytest.approx(2000, rel=0.08)] * len(
        TASKS
    )


@given(weights, st.sampled_from([0.0, -1.0]), run_seeds)
def test_a_task_without_weight_is_never_drawn(
    weights: dict[str, float], nothing: float, run_seed: int
) -> None:
    sampler = Sampler(
        {"a": nothing, **weights, "z": nothing}, run_seed=run_seed, replica="a"
    )
    assert {recipe.task for recipe in take(sampler, 50)} <= weights.keys()


@pytest.mark.parametrize("weights", [{}, {"gcd": 0.0}, {"gcd": 0.0, "lcm": -1.0}])
def test_a_sampler_needs_a_task_to_draw(weights: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="weight above 0"):
        Sampler(weights, run_seed=1, replica="a")


def test_the_evaluation_set_depends_on_its_own_seed_alone() -> None:
    recipes = evaluation_recipes(3, ["lcm", "gcd"], 2)
    assert [recipe.task for recipe in recipes] == ["lcm", "lcm", "gcd", "gcd"]
    assert recipes[2:] == evaluation_recipes(3, ["gcd"], 2)
    assert evaluation_recipes(3, ["gcd"], 5)[:2] == recipes[2:]


LADDERS = {task: tuple({"size": size} for size in range(4)) for task in TASKS}


def learning(*, by_signal: bool = True, run_seed: int = 1) -> Sampler:
    """Return a sampler that learns levels and signal."""
    weights, levels = dict.fromkeys(TASKS, 1.0), Curriculum(LADDERS)
    return Sampler(
        weights, run_seed=run_seed, replica="a", levels=levels, by_signal=by_signal
    )


def practise(
    sampler: Sampler, groups: int, solved_shares: dict[str, float]
) -> Counter[str]:
    """Draw and record groups with these solved shares; return the draws per task."""
    rng = Random(1)
    drawn: Counter[str] = Counter()
    for _ in range(groups):
        recipe = sampler.next_recipe()
        drawn[recipe.task] += 1
        solved = sum(rng.random() < solved_shares[recipe.task] for _ in range(8))
        sampler.report_result(recipe, solved=solved, scored=8)
    return drawn


def test_a_recipe_has_the_parameters_of_its_level() -> None:
    for recipe in take(learning(), 50):
        assert recipe.parameters == {"size": recipe.level}


def test_user_parameters_override_the_level() -> None:
    levels = RandomLevels({"gcd": ({"size": 1, "terms": 2},)})
    of_run: Any = {"run_seed": 1, "replica": "a", "overrides": {"gcd": {"size": 9}}}
    with_level = Sampler({"gcd": 1.0}, levels=levels, **of_run).next_recipe()
    assert (with_level.level, with_level.parameters) == (0, {"size": 9, "terms": 2})
    unset = Sampler({"gcd": 1.0}, **of_run).next_recipe()
    assert (unset.level, unset.parameters) == (None, {"size": 9})


def test_levels_change_neither_the_tasks_nor_the_seeds() -> None:
    plain = take(uniform(), 50)
    levelled = take(learning(by_signal=False), 50)
    assert [(r.task, r.seed) for r in levelled] == [(r.task, r.seed) for r in plain]


@given(st.booleans(), st.integers(0, 40), st.integers(0, 2**32))
def test_a_resumed_sampler_keeps_its_evidence(
    by_signal: bool, groups: int, seed: int
) -> None:
    sampler, resumed = (
        learning(by_signal=by_signal),
        learning(by_signal=by_signal, run_seed=9),
    )
    shares = {task: Random(f"{seed}{task}").random() for task in TASKS}
    practise(sampler, groups, shares)
    sampler.cap("gcd", 2)
    resumed.load_state_dict(json.loads(json.dumps(sampler.state_dict())))
    assert resumed.state_dict() == sampler.state_dict()
    assert practise(resumed, 20, shares) == practise(sampler, 20, shares)
    assert resumed.state_dict() == sampler.state_dict()


def test_tasks_are_drawn_by_weight_times_probability_of_signal() -> None:
    weights = {"gcd": 2.0, "lcm": 1.0, "sudoku": 1.0}
    sampler = Sampler(weights, run_seed=1, replica="a", by_signal=True)
    shares = {"gcd": 0.7, "lcm": 0.7, "sudoku": 0.0}
    practise(sampler, 200, shares)
    drawn = practise(sampler, 2000, shares)
    assert drawn["gcd"] == pytest.approx(2 * drawn["lcm"], rel=0.15)
    assert 20 < drawn["sudoku"] < 0.2 * drawn["lcm"]


def test_a_task_that_gains_signal_is_drawn_more_often() -> None:
    sampler = learning()
    practise(sampler, 1000, {"gcd": 0.0, "lcm": 0.7, "sudoku": 0.7, "word_ladder": 0.7})
    drawn = practise(sampler, 1000, dict.fromkeys(TASKS, 0.7))
    assert drawn["gcd"] > 150


def test_a_group_without_scored_rollouts_is_ignored() -> None:
    sampler = learning()
    recipe = sampler.next_recipe()
    before = sampler.state_dict()
    assert sampler.report_result(recipe, solved=0, scored=0) is None
    assert (
        sampler.report_result(Recipe(task="gone", seed=2, level=1), solved=8, scored=8)
        is None
    )
    assert sampler.state_dict() == before


def test_a_solved_task_moves_up() -> None:
    sampler = learning()
    said = [
        sampler.report_result(recipe, solved=8, scored=8)
        for recipe in take(sampler, 20)
    ]
    moves = [
        re.match(r"(\w+): level (\S+) -> (\S+) of ", move) for move in said if move
    ]
    assert moves
    for move in moves:
        assert move is not None
        assert move[1] in TASKS
        assert float(move[3]) > float(move[2])


def test_a_capped_level_is_not_drawn_again() -> None:
    sampler = Sampler(
        {"gcd": 1.0}, run_seed=1, replica="a", levels=RandomLevels(LADDERS)
    )
    sampler.cap("gcd", 1)
    assert {recipe.level for recipe in take(sampler, 50)} == {0, 1}


ESTIMATED = ("gcd", "lcm")


def mean_chance(
    estimates: SignalEstimates, level: int | None = None, draw: int = 0
) -> float:
    rng = random.Random(1)
    return statistics.mean(
        estimates.sample_signal("gcd", level, draw, rng) for _ in range(4000)
    )


def told(
    results: list[bool], level: int | None = None, draw: int = 0
) -> SignalEstimates:
    estimates = SignalEstimates(ESTIMATED)
    for mixed in results:
        estimates.report_result("gcd", level, draw, mixed=mixed)
    return estimates


def test_an_unseen_task_is_as_likely_to_have_signal_as_not() -> None:
    assert mean_chance(SignalEstimates(ESTIMATED)) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(("mixed", "flat"), [(9, 1), (5, 5), (2, 8)])
def test_the_estimate_follows_the_results(mixed: int, flat: int) -> None:
    estimates = told([True] * mixed + [False] * flat)
    assert mean_chance(estimates) == pytest.approx((mixed + 0.5) / 11, abs=0.02)


def test_old_evidence_decays() -> None:
    estimates = told([False] * 8)
    half_life = HALF_LIFE * len(ESTIMATED)
    after_one = mean_chance(estimates, draw=half_life)
    assert (
        mean_chance(estimates) < after_one < mean_chance(estimates, draw=3 * half_life)
    )
    assert after_one == pytest.approx(0.5 / 5, abs=0.02)
    assert mean_chance(estimates, draw=20 * half_life) == pytest.approx(0.5, abs=0.03)


def test_levels_are_estimated_separately() -> None:
    estimates = told([True] * 20, level=1)
    assert mean_chance(estimates, level=1) > 0.9
    assert mean_chance(estimates, level=2) == pytest.approx(0.5, abs=0.03)


def test_a_stored_state_restores_the_estimates() -> None:
    estimates = told([True, False, True], level=2, draw=7)
    other = SignalEstimates(ESTIMATED)
    other.load_state_dict(json.loads(json.dumps(estimates.state_dict())))
    chances = [
        e.sample_signal("gcd", 2, 9, random.Random(1)) for e in (estimates, other)
    ]
    assert chances[0] == chances[1]


def test_a_task_no_longer_used_is_forgotten() -> None:
    other = SignalEstimates(["lcm"])
    other.load_state_dict(told([True]).state_dict())
    assert other.state_dict() == []
