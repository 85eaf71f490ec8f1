"""Problems with signal are asked again, when the policy has moved, and not too often."""

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.demo.policy import Learner, Skill
from reasoning_gym_environment.problems.expected_signal import (
    SolvedShares,
    signal_probability,
)
from reasoning_gym_environment.problems.levels import (
    Curriculum,
    LevelPolicy,
    RandomLevels,
)
from reasoning_gym_environment.problems.replay import (
    MAX_ATTEMPTS,
    MAX_PROBLEMS,
    WAIT,
    ReplayBuffer,
)
from reasoning_gym_environment.problems.sampler import (
    FRESH_SHARE,
    Sampler,
    count_group,
    sampling_metrics,
)
from reasoning_gym_environment.records import Recipe

TASKS = ("gcd", "lcm", "sudoku")
LADDERS = {"gcd": ({"a": 1}, {"a": 2}, {"a": 3}), "lcm": ({}, {}), "sudoku": ({},)}
SIZE = 8
Result = Callable[[Recipe], int]


def by_signal(
    replica: str = "a", levels: LevelPolicy | None = None, tasks: Iterable[str] = TASKS
) -> Sampler:
    weights = dict.fromkeys(tasks, 1.0)
    return Sampler(weights, run_seed=1, replica=replica, levels=levels, by_signal=True)


def run(
    sampler: Sampler, groups: int, solved: Result, *, step: int | None = None
) -> list[Recipe]:
    """Draw and record groups, one after the other; return their recipes."""
    recipes = []
    for _ in range(groups):
        recipes.append(sampler.next_recipe())
        sampler.report_result(
            recipes[-1], solved=solved(recipes[-1]), scored=SIZE, step=step
        )
    return recipes


def uneven(recipe: Recipe) -> int:
    """Return the result of a problem: half are solved by none, a quarter by all."""
    return (0, 0, 4, SIZE)[recipe.seed // 2 % 4]


def askings(recipes: list[Recipe]) -> Counter[tuple[str, int]]:
    return Counter((recipe.task, recipe.seed) for recipe in recipes)


@given(st.floats(0.05, 50), st.floats(0.05, 50), st.integers(2, 64))
def test_the_probability_of_signal_is_that_of_a_beta_binomial(
    a: float, b: float, n: int
) -> None:
    """Pólya's urn: each solved rollout makes the next one likelier, and so for the others."""
    all_solved = math.prod((a + i) / (a + b + i) for i in range(n))
    none_solved = math.prod((b + i) / (a + b + i) for i in range(n))
    assert signal_probability(a, b, n) == pytest.approx(
        1 - all_solved - none_solved, abs=1e-9
    )


def test_only_problems_with_signal_are_asked_again_after_many_draws() -> None:
    recipes = run(by_signal(), 5000, uneven)
    times = askings(recipes)
    again = {key for key, number in times.items() if number > 1}
    assert len(again) > 200
    assert all(uneven(Recipe(task=task, seed=seed)) == 4 for task, seed in again)
    assert max(times.values()) == MAX_ATTEMPTS
    last: dict[tuple[str, int], int] = {}
    for draw, recipe in enumerate(recipes):
        key = (recipe.task, recipe.seed)
        assert draw - last.get(key, -WAIT) >= WAIT
        last[key] = draw


def test_a_problem_is_not_asked_again_while_the_trainer_stands_still() -> None:
    sampler = by_signal()
    before = run(sampler, 1000, uneven, step=7)
    assert max(askings(before).values()) == 1
    after = run(sampler, 300, uneven, step=8)
    assert max(askings(before + after).values()) == 2


def test_a_share_of_fresh_problems_remains() -> None:
    recipes = run(by_signal(), 3000, lambda _: 4)
    assert len(askings(recipes)) / len(recipes) >= FRESH_SHARE - 0.03


def test_every_task_is_seen_whatever_the_others_bring() -> None:
    recipes = run(by_signal(), 3000, lambda recipe: 4 if recipe.task == "gcd" else 0)
    times = Counter(recipe.task for recipe in recipes[-1000:])
    assert all(times[task] > 20 for task in TASKS)


def test_replicas_share_no_problem() -> None:
    one, other = (
        askings(run(by_signal(replica), 2000, uneven)) for replica in ("0", "1")
    )
    assert not set(one) & set(other)


@pytest.mark.parametrize("drawn", [0, 150, 900])
def test_a_stored_state_continues_exactly(drawn: int) -> None:
    uninterrupted = by_signal(levels=Curriculum(LADDERS))
    run(uninterrupted, drawn, uneven)
    in_flight = [uninterrupted.next_recipe() for _ in range(40)]
    state = json.loads(json.dumps(uninterrupted.state_dict()))
    resumed = by_signal("another", levels=Curriculum(LADDERS))
    resumed.load_state_dict(state)
    for sampler in (uninterrupted, resumed):
        for recipe in in_flight:
            sampler.report_result(recipe, solved=uneven(recipe), scored=SIZE)
    assert run(resumed, 900, uneven) == run(uninterrupted, 900, uneven)
    assert resumed.state_dict() == uninterrupted.state_dict()


def test_problems_that_this_run_cannot_draw_are_forgotten() -> None:
    old = by_signal(levels=RandomLevels(LADDERS))
    run(old, 1500, lambda _: 4)
    changed = {"gcd": ({"a": 1}, {"a": 5}), "sudoku": ({},)}
    sampler = by_signal(levels=RandomLevels(changed), tasks=changed)
    sampler.load_state_dict(old.state_dict())
    known = [
        Recipe.from_json(row[0]) for row in sampler.state_dict()["memory"]["ready"]
    ]
    assert {(recipe.task, recipe.level) for recipe in known} == {
        ("gcd", 0),
        ("sudoku", 0),
    }


def test_a_problem_whose_result_never_comes_is_let_go() -> None:
    sampler = by_signal()
    for _ in range(3 * MAX_PROBLEMS):
        recipe = sampler.next_recipe()
        if not sampler.is_replayed(recipe):
            sampler.report_result(recipe, solved=4, scored=SIZE)
    memory = sampler.state_dict()["memory"]
    assert len(memory["awaited"]) <= MAX_PROBLEMS
    assert len(memory["ready"]) <= MAX_PROBLEMS


def test_levels_learn_from_first_groups_alone() -> None:
    curriculum = Curriculum(LADDERS)
    sampler = by_signal(levels=curriculum)
    recipes = run(sampler, 2000, uneven)
    learned = [curriculum.stats()["task_details"][task] for task in TASKS]
    groups = sum(one["groups"] + one["stale_groups"] for one in learned)
    assert groups == len(askings(recipes)) < len(recipes)


def share_with_signal(spread: float, *, again: bool) -> float:
    """Simulate a policy that doesn't learn; return the share of groups with signal."""
    skills = {task: Skill(ability=0.4, span=6.0, default=0.5) for task in TASKS}
    learner, rng = Learner(skills, seed=2, item_spread=spread), random.Random(3)
    sampler = Sampler(
        dict.fromkeys(TASKS, 1.0), run_seed=1, replica="a", by_signal=again
    )
    mixed = 0
    for _ in range(2500):
        recipe = sampler.next_recipe()
        chance = learner.solve_probability(recipe, 1)
        solved = sum(rng.random() < chance for _ in range(SIZE))
        sampler.report_result(recipe, solved=solved, scored=SIZE)
        mixed += 0 < solved < SIZE
    return mixed / 2500


def test_signal_rises_where_problems_differ() -> None:
    assert (
        share_with_signal(4.0, again=True) > share_with_signal(4.0, again=False) + 0.1
    )


def test_nothing_is_lost_where_problems_are_alike() -> None:
    assert (
        share_with_signal(0.0, again=True) > share_with_signal(0.0, again=False) - 0.02
    )


def test_a_problems_own_results_count_for_hundreds_of_draws() -> None:
    shares = SolvedShares(TASKS)
    replay = ReplayBuffer(TASKS, shares)
    for draw, solved in enumerate([0, SIZE] * 50 + [SIZE - 1, 4]):
        recipe = Recipe(task="gcd", seed=draw, level=0)
        replay.report_result(recipe, draw, solved=solved, scored=SIZE, step=None)
        shares.report_result("gcd", 0, draw, solved=solved, scored=SIZE)
    draw += 2 * WAIT
    chance, half_solved = replay.best("gcd", draw)
    assert half_solved == recipe
    replay.take(recipe)
    lower, nearly_solved = replay.best("gcd", draw)
    assert nearly_solved == Recipe(task="gcd", seed=100, level=0)
    assert chance > lower + 0.1


def test_a_buffer_that_knows_nothing_offers_nothing() -> None:
    assert ReplayBuffer(TASKS, SolvedShares(TASKS)).best("gcd", 10**6) == (0.0, None)


def test_the_account_tells_fresh_groups_from_those_asked_again() -> None:
    counts: Counter[str] = Counter()
    assert sampling_metrics(counts) == {}
    for asked_again, solved, scored in (
        (False, 0, 8),
        (False, 3, 8),
        (True, 4, 8),
        (True, 0, 0),
    ):
        count_group(counts, replayed=asked_again, solved=solved, scored=scored)
    assert sampling_metrics(counts) == {
        "sampling/asked_again": 1 / 3,
        "sampling/fresh_with_signal": 0.5,
        "sampling/asked_again_with_signal": 1.0,
        "sampling/rollouts_per_group_with_signal": 12.0,
    }
