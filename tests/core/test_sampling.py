"""The stream of recipes: repeatable, resumable, and apart from every other stream."""

import json
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.core.records import Recipe
from reasoning_gym_environment.core.sampling import (
    Sampler,
    evaluation_recipes,
    evaluation_seed,
    training_seed,
)

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
    """Changing these breaks the resume of every stored checkpoint."""
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


def test_looking_at_the_state_draws_nothing() -> None:
    watched, other = uniform(), uniform()
    watched.state_dict()
    assert take(watched, 3) == take(other, 3)


@pytest.mark.parametrize("key", ["run_seed", "replica", "draw"])
def test_a_state_that_lacks_a_key_is_refused(key: str) -> None:
    state = uniform().state_dict()
    del state[key]
    with pytest.raises(KeyError, match=key):
        uniform().load_state_dict(state)


def test_replicas_runs_and_evaluation_share_no_seed() -> None:
    streams = [
        [recipe.seed for recipe in take(uniform(run_seed=run_seed, replica=replica), 1000)]
        for run_seed in (1, 2)
        for replica in ("0", "1", "10")
    ]
    streams += [[recipe.seed for recipe in evaluation_recipes(seed, TASKS, 250)] for seed in (1, 2)]
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


def test_seeds_spread_over_their_whole_range() -> None:
    seeds = [training_seed(1, "a", "gcd", draw) for draw in range(1000)]
    assert min(seeds) < SEED_LIMIT / 100
    assert max(seeds) > SEED_LIMIT - SEED_LIMIT / 100


def test_neighbouring_draws_have_no_neighbouring_seeds() -> None:
    """On most tasks `seed + 1` is the same stream shifted by one."""
    seeds = sorted(training_seed(1, "a", "gcd", draw) for draw in range(1000))
    assert min(after - before for before, after in pairwise(seeds)) > 1_000_000


def test_a_task_is_drawn_as_often_as_its_weight_says() -> None:
    sampler = Sampler({"gcd": 1.0, "lcm": 3.0, "sudoku": 4.0}, run_seed=7, replica="a")
    counts = Counter(recipe.task for recipe in take(sampler, 8000))
    assert counts["gcd"] == pytest.approx(1000, rel=0.1)
    assert counts["lcm"] == pytest.approx(3000, rel=0.05)
    assert counts["sudoku"] == pytest.approx(4000, rel=0.05)


def test_equal_weights_draw_uniformly() -> None:
    counts = Counter(recipe.task for recipe in take(uniform(), 8000))
    assert [counts[task] for task in TASKS] == [pytest.approx(2000, rel=0.08)] * len(TASKS)


@given(weights, st.sampled_from([0.0, -1.0]), run_seeds)
def test_a_task_without_weight_is_never_drawn(
    weights: dict[str, float], nothing: float, run_seed: int
) -> None:
    sampler = Sampler({"a": nothing, **weights, "z": nothing}, run_seed=run_seed, replica="a")
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
