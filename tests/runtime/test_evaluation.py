"""The evaluation set is complete or says what it lacks; a failing sample is one unscored sample."""

import asyncio
import math

import pytest
from runtime_values import group

from reasoning_gym_environment.core.records import GroupResult, Problem, Recipe, Status
from reasoning_gym_environment.core.sampling import evaluation_recipes
from reasoning_gym_environment.runtime.evaluation import (
    SampleError,
    build_evaluation_set,
    evaluation_metrics,
    headline,
    run_evaluation,
    unscored_group,
    with_progress,
)
from reasoning_gym_environment.runtime.task_pool import TaskPool

CATEGORIES = {"gcd": "arithmetic", "lcm": "arithmetic", "sudoku": "games"}


def problems(count: int) -> list[Problem]:
    recipes = [Recipe(task="gcd", seed=seed) for seed in range(count)]
    return [Problem(recipe=r, question=f"{r.seed}?", oracle="1", entry=b"") for r in recipes]


class Policy:
    """Answers every problem after a moment; fails where it is told to.

    Attributes:
        most: the most samples that were under way at once.
    """

    def __init__(
        self, fails_on: frozenset[int] = frozenset(), error: type[Exception] = SampleError
    ):
        self._fails_on = fails_on
        self._error = error
        self._running = 0
        self.most = 0
        self.ended = 0

    async def __call__(self, problem: Problem) -> GroupResult:
        self._running += 1
        self.most = max(self.most, self._running)
        try:
            for _ in range(20 - problem.recipe.seed % 20):
                await asyncio.sleep(0)
            if problem.recipe.seed in self._fails_on:
                raise self._error(f"no answer to {problem.recipe.seed}")
            return GroupResult(problem=problem, attempts=group(1.0).attempts)
        finally:
            self._running -= 1
            self.ended += 1


@pytest.mark.asyncio(loop_scope="session")
async def test_the_evaluation_set_is_made_in_the_order_of_its_recipes(pool: TaskPool) -> None:
    recipes = evaluation_recipes(5, ["gcd", "sudoku", "coin_flip"], 4)
    made = await build_evaluation_set(pool, recipes)
    assert [problem.recipe for problem in made] == recipes


@pytest.mark.asyncio(loop_scope="session")
async def test_an_item_that_cannot_be_made_is_missing_and_said_to_be(
    pool: TaskPool, caplog: pytest.LogCaptureFixture
) -> None:
    recipes = evaluation_recipes(5, ["gcd", "no_such_task", "coin_flip"], 1)
    made = await build_evaluation_set(pool, recipes)
    assert [problem.recipe.task for problem in made] == ["gcd", "coin_flip"]
    assert "The evaluation set lacks an item: no_such_task" in caplog.text


@pytest.mark.parametrize("concurrency", [1, 3, 100])
async def test_problems_are_evaluated_in_order_and_so_many_at_a_time(concurrency: int) -> None:
    policy = Policy()
    groups = await run_evaluation(problems(40), policy, concurrency=concurrency)
    assert [g.problem for g in groups] == problems(40)
    assert policy.most == min(concurrency, 40)


async def test_a_failing_sample_is_one_unscored_sample_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    groups = await run_evaluation(problems(5), Policy(frozenset({2})), concurrency=2)
    statuses = [g.attempts[0].verdict.status for g in groups]
    assert statuses == [Status.SOLVED] * 2 + [Status.UNSCORED] + [Status.SOLVED] * 2
    assert groups[2].attempts[0].verdict.detail == "no answer to 2"
    assert groups[2].attempts[0].verdict.score is None
    assert "Evaluation of gcd: no answer to 2" in caplog.text


async def test_any_other_failure_ends_the_evaluation_and_every_sample_under_way() -> None:
    policy = Policy(frozenset({19}), error=ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        await run_evaluation(problems(40), policy, concurrency=40)
    assert policy.ended == 40


async def test_results_come_in_the_order_of_the_jobs() -> None:
    async def job(number: int) -> int:
        for _ in range(10 - number):
            await asyncio.sleep(0)
        return number

    assert await with_progress([job(n) for n in range(10)], "jobs") == list(range(10))


async def test_jobs_end_when_their_caller_is_cancelled() -> None:
    policy = Policy()
    waiting = asyncio.create_task(run_evaluation(problems(5), policy, concurrency=5))
    for _ in range(3):
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert policy.ended == policy.most == 5


def test_metrics_are_shares_overall_by_category_and_by_task() -> None:
    groups = [group(1.0), group(0.0), group(1.0, task="lcm"), group(0.2, task="sudoku")]
    metrics = evaluation_metrics(groups, CATEGORIES)
    assert metrics["eval/percent_correct"] == metrics["eval/solved"] == 0.5
    assert metrics["eval/score"] == pytest.approx(0.55)
    assert metrics["eval/category/arithmetic/solved"] == pytest.approx(2 / 3)
    assert metrics["eval/category/games/solved"] == 0.0
    assert metrics["eval/task/gcd/solved"] == 0.5
    assert metrics["eval/task/sudoku/score"] == pytest.approx(0.2)
    assert metrics["eval/status/wrong"] == 0.5
    assert not any("groups" in name for name in metrics)
    assert all(math.isfinite(value) for value in metrics.values())


def test_unscored_samples_count_in_their_own_share_alone() -> None:
    scored = [group(1.0), group(0.0)]
    alone = evaluation_metrics(scored, CATEGORIES)
    lost = unscored_group(problems(1)[0], "no reply")
    beside = evaluation_metrics([*scored, lost, lost], CATEGORIES)
    assert beside["eval/status/unscored"] == 0.5
    others = [name for name in alone if not name.startswith("eval/status/")]
    assert {name: beside[name] for name in others} == {name: alone[name] for name in others}


def test_an_evaluation_without_any_score_has_no_share_of_correct_answers() -> None:
    metrics = evaluation_metrics([unscored_group(problems(1)[0], "down")], CATEGORIES)
    assert "eval/percent_correct" not in metrics
    assert metrics["eval/status/unscored"] == 1.0


def test_the_headline_says_what_is_known() -> None:
    metrics = evaluation_metrics([group(1.0), group(0.0)], CATEGORIES)
    expected = "percent_correct 0.500, score 0.500, truncated 0.000, status/unscored 0.000"
    assert headline(metrics) == expected
    assert headline({}) == ""
