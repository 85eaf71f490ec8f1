"""The simulated learner: a psychometric curve per task, and skills that change."""

import statistics

import pytest

from reasoning_gym_environment.demo.policy import (
    ABILITIES,
    STEPS,
    Learner,
    Skill,
    spread_skills,
)
from reasoning_gym_environment.records import Recipe

SKILL = Skill(ability=0.5, span=6.0, default=0.25)


def learner(**settings: float) -> Learner:
    return Learner({"gcd": SKILL, "lcm": SKILL}, seed=1, **settings)


def recipe(level: int | None, seed: int = 2) -> Recipe:
    return Recipe(task="gcd", seed=seed, level=level)


def test_half_of_the_items_are_solved_where_the_ability_lies() -> None:
    assert learner().solved_share("gcd", 1, 3) == pytest.approx(0.5)
    assert learner(item_spread=0.0).solve_probability(recipe(1), 3) == pytest.approx(
        0.5
    )


def test_harder_levels_are_solved_less() -> None:
    shares = [learner().solved_share("gcd", level, 7) for level in range(7)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.9
    assert shares[-1] < 0.1


def test_without_a_level_the_problem_is_as_hard_as_the_library_s_default() -> None:
    plain = learner(item_spread=0.0)
    assert plain.solve_probability(recipe(None), 5) == plain.solve_probability(
        recipe(1), 5
    )


@pytest.mark.parametrize("item_spread", [0.5, 1.5])
@pytest.mark.parametrize("level", range(4))
def test_the_solved_share_is_the_mean_over_the_items(
    level: int, item_spread: float
) -> None:
    one = learner(item_spread=item_spread)
    items = [one.solve_probability(recipe(level, seed), 4) for seed in range(4000)]
    assert one.solved_share("gcd", level, 4) == pytest.approx(
        statistics.mean(items), abs=0.02
    )
    assert statistics.stdev(items) > 0.01


def test_an_item_is_as_hard_whenever_it_is_asked() -> None:
    one = learner()
    assert one.solve_probability(recipe(2), 4) == one.solve_probability(recipe(2), 4)
    assert one.solve_probability(recipe(2), 4) != one.solve_probability(
        recipe(2, seed=4), 4
    )


def test_only_a_group_with_signal_teaches_its_task_and_the_others_fade() -> None:
    one = learner(gain=0.1, loss=0.05)
    before = one.solved_share("gcd", 1, 3)
    one.after_group("gcd", mixed=False)
    assert one.solved_share("gcd", 1, 3) == before
    one.after_group("gcd", mixed=True)
    after = one.solved_share("gcd", 1, 3)
    assert after > before
    one.after_group("lcm", mixed=False)
    assert before < one.solved_share("gcd", 1, 3) < after
    for _ in range(10):
        one.after_group("lcm", mixed=False)
    assert one.solved_share("gcd", 1, 3) == pytest.approx(before)


def test_getting_better_at_once_moves_every_task() -> None:
    one = learner()
    one.improve(0.5)
    assert (
        one.solved_share("gcd", 2, 3)
        == one.solved_share("lcm", 2, 3)
        == pytest.approx(0.5)
    )


def test_skills_are_spread_over_the_ladders() -> None:
    heights = {f"task{number}": 1 + number % 6 for number in range(600)}
    skills = spread_skills(heights, seed=1)
    assert skills == spread_skills(heights, seed=1) != spread_skills(heights, seed=2)
    abilities = [skill.ability for skill in skills.values()]
    assert min(abilities) == pytest.approx(ABILITIES[0], abs=0.05)
    assert max(abilities) == pytest.approx(ABILITIES[1], abs=0.05)
    for task, skill in skills.items():
        steps = min(heights[task] - 1, 3) or 3
        assert STEPS[0] <= skill.span / steps <= STEPS[1]
