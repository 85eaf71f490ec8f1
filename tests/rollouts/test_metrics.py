"""Means against the standard library's, and what never enters one."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random

import pytest
from group_values import completion
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.records import (
    Attempt,
    GroupResult,
    Problem,
    Recipe,
    Reward,
    Status,
    Verdict,
)
from reasoning_gym_environment.rollouts.values import (
    Mean,
    Means,
    attempt_values,
    group_values,
)

CATEGORIES = {"gcd": "arithmetic", "lcm": "arithmetic", "sudoku": "games"}

scores = st.floats(0.0, 1.0)
token_counts = st.integers(0, 200_000).map(float)


def attempt(
    score: float | None, status: Status, finish_reason: str = "stop"
) -> Attempt:
    return Attempt(
        completion=completion(prompt=1, length=2, finish_reason=finish_reason),
        answer="4",
        verdict=Verdict(score=score, status=status),
        reward=Reward(value=score or 0.0),
    )


SOLVED = attempt(1.0, Status.SOLVED)
PARTLY = attempt(0.25, Status.WRONG)
TIMEOUT = attempt(0.0, Status.TIMEOUT)
UNSCORED = attempt(None, Status.UNSCORED)


def group(
    *attempts: Attempt, task: str = "gcd", level: int | None = None
) -> GroupResult:
    recipe = Recipe(task=task, seed=2, level=level)
    problem = Problem(recipe=recipe, question="?", oracle=None, entry=b"")
    return GroupResult(problem=problem, attempts=attempts)


def mean_of(values: list[float]) -> Mean:
    mean = Mean()
    for value in values:
        mean.add(value)
    return mean


def summarise(groups: Iterable[GroupResult], categories: Mapping[str, str]) -> Means:
    means = Means()
    for each in groups:
        for values in group_values(each, categories):
            means.add(values)
    return means


def score_averages(result: GroupResult) -> dict[str, tuple[float, int]]:
    """Value and count of all that averages scores; the status shares are of all rollouts."""
    means = summarise([result], CATEGORIES)
    names = [
        name
        for name in means.values()
        if name.rpartition("/")[2] in ("solved", "score", "reward")
        and not name.startswith("status/")
    ]
    return {name: (means[name].value, means[name].count) for name in names}


groups = st.builds(
    lambda attempts, task: group(*attempts, task=task),
    st.lists(
        st.sampled_from([SOLVED, PARTLY, TIMEOUT, UNSCORED]), min_size=1, max_size=8
    ),
    st.sampled_from(sorted(CATEGORIES)),
)


class TestMean:
    @given(st.lists(scores, min_size=1) | st.lists(token_counts, min_size=1))
    def test_its_value_is_the_mean(self, values: list[float]) -> None:
        assert mean_of(values).value == pytest.approx(statistics.mean(values))

    def test_it_needs_values(self) -> None:
        assert math.isnan(Mean().value)
        assert mean_of([0.5]).value == 0.5


class TestMeans:
    def test_each_name_has_its_own_mean_and_count_and_names_come_sorted(self) -> None:
        means = Means()
        means.add({"b": 4.0, "a": 1.0})
        means.add({"a": 2.0})
        assert list(means.values().items()) == [("a", 1.5), ("b", 4.0)]
        assert list(means.counts().items()) == [("a", 2), ("b", 1)]
        assert means["nothing"].count == 0
        assert "nothing" not in means.values()

    @given(
        st.lists(st.dictionaries(st.sampled_from("abc"), scores | token_counts)),
        st.data(),
    )
    def test_merged_they_are_those_of_all_values(
        self, added: list[dict[str, float]], data: st.DataObject
    ) -> None:
        split = data.draw(st.integers(0, len(added)))
        one, first, second = Means(), Means(), Means()
        for place, values in enumerate(added):
            one.add(values)
            (first if place < split else second).add(values)
        first.merge(second)
        assert first.counts() == one.counts()
        assert first.values() == pytest.approx(one.values())


class TestGroups:
    def test_groups_count_by_source_where_there_are_own_tasks(self) -> None:
        library = group(SOLVED, task="gcd")
        own = group(TIMEOUT, SOLVED, task="mine")
        own = replace(own, problem=replace(own.problem, source="my_tasks"))
        means = summarise([library, own], {**CATEGORIES, "mine": "my_tasks"})
        assert means["source/reasoning-gym/solved"].value == 1.0
        assert means["source/my_tasks/solved"].value == 0.5
        assert means["source/my_tasks/groups/mixed"].value == 1.0
        assert not any(
            "source" in name for name in summarise([library], CATEGORIES).values()
        )

    @given(st.lists(groups, max_size=6), st.randoms(use_true_random=False))
    def test_their_order_does_not_matter(
        self, groups: list[GroupResult], random: Random
    ) -> None:
        shuffled = random.sample(groups, len(groups))
        one, other = summarise(groups, CATEGORIES), summarise(shuffled, CATEGORIES)
        assert one.values() == other.values()
        assert one.counts() == other.counts()

    @given(groups)
    def test_an_unscored_rollout_moves_no_average_of_scores(
        self, result: GroupResult
    ) -> None:
        scored = group(*result.scored, task=result.problem.recipe.task)
        assert score_averages(result) == score_averages(scored)

    def test_an_unscored_rollout_is_counted_as_such_with_its_length_and_has_no_score(
        self,
    ) -> None:
        cut = attempt(None, Status.UNSCORED, finish_reason="length")
        means = summarise([group(SOLVED, cut)], CATEGORIES)
        assert means["status/unscored"].value == means["truncated"].value == 0.5
        assert means["completion_tokens"].value == 2.0
        assert (means["solved"].value, means["solved"].count) == (1.0, 1)
        assert not {"solved", "score", "reward"} & attempt_values(UNSCORED).keys()
        means = summarise([group(UNSCORED, UNSCORED), group(SOLVED)], CATEGORIES)
        assert means["groups/none_solved"].total == 0.0  # nothing is known of the first

    def test_every_rollout_has_exactly_one_status(self) -> None:
        for status in Status:
            values = attempt_values(attempt(0.0, status))
            shares = {
                name: value
                for name, value in values.items()
                if name.startswith("status/")
            }
            assert len(shares) == len(Status)
            assert {name for name, value in shares.items() if value} == {
                f"status/{status.value}"
            }

    def test_averages_are_kept_overall_by_category_and_by_task(self) -> None:
        results = [group(SOLVED, TIMEOUT), group(SOLVED, SOLVED, task="lcm")]
        means = summarise([*results, group(PARTLY, task="sudoku")], CATEGORIES)
        averages = {
            "solved": 0.6,
            "category/arithmetic/solved": 0.75,
            "category/games/solved": 0.0,
            "task/gcd/solved": 0.5,
            "task/lcm/solved": 1.0,
            "task/sudoku/solved": 0.0,
            "task/sudoku/score": 0.25,
        }
        assert {name: means[name].value for name in averages} == averages

    def test_signal_is_kept_overall_by_category_by_task_and_by_level(self) -> None:
        at_levels = [group(SOLVED, TIMEOUT, level=1), group(SOLVED, level=2)]
        means = summarise([*at_levels, group(PARTLY, task="lcm")], CATEGORIES)
        shares = {
            "groups/mixed": 1 / 3,
            "groups/all_solved": 1 / 3,
            "groups/none_solved": 1 / 3,
            "category/arithmetic/groups/mixed": 1 / 3,
            "task/gcd/groups/mixed": 1 / 2,
            "task/gcd/groups/all_solved": 1 / 2,
            "task/gcd/level/1/groups/mixed": 1.0,
            "task/gcd/level/2/groups/all_solved": 1.0,
            "task/lcm/groups/none_solved": 1.0,
        }
        assert {name: means[name].value for name in shares} == pytest.approx(shares)
        assert not any(
            "level" in name for name in summarise([group(SOLVED)], CATEGORIES).values()
        )
