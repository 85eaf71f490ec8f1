"""The evaluation set is complete or logs what it lacks; every item has a sample."""

import asyncio
import functools
import json
import logging
import math
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from group_values import completion

from reasoning_gym_environment.errors import (
    ConfigurationError,
    GenerationError,
    GenerationTimeoutError,
)
from reasoning_gym_environment.evaluation.evaluation_settings import (
    EvaluationOptions,
    EvaluationSettings,
)
from reasoning_gym_environment.evaluation.planning import EvaluationSet, planned_recipes
from reasoning_gym_environment.evaluation.run import (
    Evaluation,
    IncompleteEvaluationError,
)
from reasoning_gym_environment.evaluation.store import EvaluationResults, read_results
from reasoning_gym_environment.evaluation.tables import evaluation_table
from reasoning_gym_environment.inference.dialects import SamplingParams
from reasoning_gym_environment.inference.errors import NO_ROOM, InferenceError
from reasoning_gym_environment.inference.prompts import Prompt, build_messages
from reasoning_gym_environment.inference.usage import RequestPlan, RequestUsage
from reasoning_gym_environment.problems.seeds import evaluation_recipes
from reasoning_gym_environment.records import (
    Completion,
    Ladder,
    Problem,
    Recipe,
    Status,
    Verdict,
)
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.scoring.grading import ScoringSettings
from reasoning_gym_environment.util.progress import with_progress

LADDER = ({"max_value": 10}, {"max_value": 20}, {"max_value": 30})


def plan(
    *tasks: str,
    per_task: int = 1,
    difficulties: Sequence[float] = (),
    seed: int = 5,
    ladders: Mapping[str, Ladder] | None = None,
) -> list[tuple[Recipe, float | None]]:
    """Without other ladders only gcd has more than one level."""
    return planned_recipes(
        tasks=tasks,
        eval_seed=seed,
        num_eval_samples_per_task=per_task,
        eval_difficulties=difficulties,
        ladders=ladders or {"gcd": LADDER, "coin_flip": ({},)},
    )


class Numbered:
    """Makes problems whose questions are their numbers."""

    def __init__(self) -> None:
        self.made = 0

    async def generate(self, recipe: Recipe) -> Problem:
        self.made += 1
        return Problem(
            recipe=recipe, question=str(self.made - 1), oracle="1", entry=b""
        )


class AlwaysRight:
    """A verifier to which each answer is right."""

    async def verify(self, problem: Problem, answers: Sequence[str]) -> list[Verdict]:
        return [Verdict(score=1.0, status=Status.SOLVED) for _ in answers]


class Policy:
    """A client that answers every question after a moment; fails where it is told to.

    Attributes:
        most: the most samples that were under way at once.
        refused: the parameters that it refuses.
    """

    refused: frozenset[str] = frozenset()
    part_size = 8
    waiting = ""

    def __init__(
        self,
        fails_on: frozenset[int] = frozenset(),
        error: Callable[[str], Exception] = InferenceError,
        *,
        answers: bool = True,
    ):
        self._answers = answers
        self._fails_on = fails_on
        self._error = error
        self._running = 0
        self.most = 0
        self.ended = 0

    async def sample(
        self,
        question: str,
        *,
        n: int,
        length_limit: int,
        sampling: SamplingParams,
        record: Callable[[RequestUsage], None],
    ) -> list[Completion]:
        self._running += 1
        self.most = max(self.most, self._running)
        number = int(question)
        try:
            for _ in range(20 - number % 20):
                await asyncio.sleep(0)
            if number in self._fails_on:
                raise self._error(f"no answer to {number}")
            return [completion("<answer>1</answer>" if self._answers else "")]
        finally:
            self._running -= 1
            self.ended += 1

    def plan(self, question: str, *, n: int, length_limit: int) -> RequestPlan:
        return RequestPlan(1, 0, n * length_limit, is_estimate=True)

    def take_probe_usage(self) -> list[RequestUsage]:
        return []

    def prompt(self, question: str) -> Prompt:
        return Prompt(messages=build_messages("", question), text="", tokens=array("i"))


async def prepared(
    policy: Policy,
    folder: Path,
    count: int,
    *,
    attempts: int = 1,
    concurrency: int = 40,
    max_token_length: int = 100,
) -> Evaluation:
    """An evaluation of gcd with so many items, numbered in their order."""
    options = EvaluationOptions(
        eval_seed=5, num_eval_samples_per_task=count, eval_attempts=attempts
    )
    settings = EvaluationSettings(
        options=options,
        conditions={},
        max_eval_workers=concurrency,
        skip_faulty_items=False,
        scoring=ScoringSettings(max_token_length=max_token_length),
        folder=folder,
        model="a model",
    )
    evaluation = Evaluation(settings, policy, AlwaysRight(), Counter())
    evaluation.prepare(Numbered().generate, {"gcd": "arithmetic"}, {})
    await evaluation.set.items()
    return evaluation


async def samples(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Run the evaluation; its samples as they were written."""
    await evaluation.run(step=None, length_limit=100, identity={"library_versions": {}})
    lines = (evaluation.folder / "samples.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def question_of(sample: dict[str, Any]) -> int:
    return int(sample["rollouts"][0]["conversation"][-2]["content"])


async def test_the_evaluation_set_is_made_in_the_order_of_its_recipes(
    pool: TaskPool,
) -> None:
    tasks = ["gcd", "sudoku", "coin_flip"]
    made = await EvaluationSet(pool.generate, plan(*tasks, per_task=4)).items()
    assert [item.problem.recipe for item in made] == evaluation_recipes(5, tasks, 4)
    assert {item.difficulty for item in made} == {None}


async def test_an_item_that_cannot_be_generated_is_skipped_with_a_warning(
    pool: TaskPool, caplog: pytest.LogCaptureFixture
) -> None:
    made = await EvaluationSet(
        pool.generate, plan("gcd", "no_such_task", "coin_flip")
    ).items()
    assert [item.problem.recipe.task for item in made] == ["gcd", "coin_flip"]
    assert caplog.text.count("The evaluation set lacks an item: no_such_task") == 1


async def test_items_at_a_difficulty_are_made_of_its_levels(
    pool: TaskPool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    planned = plan("coin_flip", "gcd", difficulties=[0.5])
    made = await EvaluationSet(pool.generate, planned).items()
    found = [(item.problem.recipe.task, item.difficulty) for item in made]
    assert found == [("coin_flip", None), ("gcd", None), ("gcd", 0.5)]
    assert made[-1].problem.recipe.parameters == {"max_value": 20}
    assert made[-1].problem.recipe.level == 1.0
    assert "having no levels: coin_flip" in caplog.text


async def test_items_are_generated_on_demand_and_only_once() -> None:
    source = Numbered()
    made = EvaluationSet(
        source.generate, plan("gcd", "coin_flip", per_task=2, difficulties=[0.5])
    )
    assert (len(made), source.made) == (6, 0)
    problems = [item.problem for item in await made.items()]
    tasks = ["gcd", "gcd", "coin_flip", "coin_flip", "gcd", "gcd"]
    assert [problem.recipe.task for problem in problems] == tasks
    assert [problem.question for problem in problems] == ["0", "1", "2", "3", "4", "5"]
    assert source.made == 6
    assert [item.problem for item in await made.items()] == problems
    assert source.made == 6


async def test_an_item_that_could_not_be_made_is_made_later() -> None:
    source, works = Numbered(), False

    async def generate(recipe: Recipe) -> Problem:
        if not works and recipe.task == "gcd":
            raise GenerationError("busy")
        return await source.generate(recipe)

    made = EvaluationSet(generate, plan("gcd", "lcm", per_task=1))
    assert len(await made.items()) == 1
    works = True
    assert len(await made.items()) == 2


async def test_an_item_is_generated_though_its_first_caller_is_cancelled() -> None:
    source = Numbered()
    made = EvaluationSet(source.generate, plan("gcd", per_task=2))
    asking = asyncio.create_task(made.items())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(await made.items()) == 2
    assert source.made == 2


def test_difficulties_do_not_change_the_items_beside_them() -> None:
    few = plan("gcd", "lcm", per_task=3, difficulties=[0.5])
    more = plan("gcd", per_task=4, difficulties=[0.25, 0.5, 1.0])
    shared = [entry for entry in few if entry[0].task == "gcd"]
    assert len(shared) == 6
    assert all(entry in more for entry in shared)
    seeds = [recipe.seed for recipe, _ in more]
    assert len(set(seeds)) == len(seeds) == 16
    assert all(seed % 2 for seed in seeds)  # no training item has it


def test_between_two_levels_the_items_mix_them() -> None:
    entries = plan("gcd", per_task=400, difficulties=[0.0, 0.1, 1.0])
    levels = {
        d: [recipe.level for recipe, difficulty in entries if difficulty == d]
        for d in (0.0, 0.1, 1.0)
    }
    assert set(levels[0.0]) == {0.0}
    assert set(levels[1.0]) == {2.0}
    # 4 standard errors.
    assert levels[0.1].count(1.0) / 400 == pytest.approx(0.2, abs=0.08)
    assert set(levels[0.1]) == {0.0, 1.0}


def test_difficulties_that_share_a_level_share_no_item() -> None:
    entries = plan("gcd", per_task=20, difficulties=[0.0, 0.1, 0.2])
    assert len({recipe.seed for recipe, _ in entries}) == 80
    first = plan("gcd", per_task=20, difficulties=[0.0])
    assert first == entries[:40]


class Few(Numbered):
    """Makes few different questions, the same at each level."""

    async def generate(self, recipe: Recipe) -> Problem:
        problem = await super().generate(recipe)
        return replace(problem, question=str(recipe.seed % 7))


async def test_a_level_with_few_questions_asks_each_once_and_says_how_many() -> None:
    made = EvaluationSet(Few().generate, plan("gcd", per_task=20, difficulties=[0.5]))
    asked = [(item.difficulty, item.problem.question) for item in await made.items()]
    assert len(set(asked)) == len(asked) == 14
    assert await made.few_questions() == {"gcd": 7, "gcd at difficulty 0.5": 7}
    planned = plan("gcd", per_task=20)
    as_planned = EvaluationSet(Few().generate, planned, is_fixed=True)
    assert len(await as_planned.items()) == 20
    assert await as_planned.few_questions() == {}


async def test_a_question_of_two_levels_is_asked_once_and_stored_for_both(
    tmp_path: Path,
) -> None:
    policy = Policy()
    evaluation = await prepared(policy, tmp_path, 20)
    options = evaluation.settings.options.model_copy(
        update={"eval_difficulties": [0.5]}
    )
    evaluation.settings = replace(evaluation.settings, options=options)
    evaluation.prepare(Few().generate, {"gcd": "arithmetic"}, {"gcd": LADDER})
    kept = await samples(evaluation)
    assert (len(kept), policy.ended) == (14, 7)
    assert sorted(map(question_of, kept)) == sorted([*range(7), *range(7)])
    assert "gcd has only 7 questions: each is asked once" in evaluation_table(
        evaluation.report
    )
    stored = json.loads((tmp_path / "metrics.json").read_text())
    assert stored["few_questions"] == {"gcd": 7, "gcd at difficulty 0.5": 7}


@pytest.mark.parametrize(
    ("concurrency", "attempts", "most"),
    [(1, 1, 1), (3, 1, 3), (100, 1, 40), (7, 2, 3), (3, 8, 1)],
)
async def test_concurrent_completions_are_limited(
    concurrency: int, attempts: int, most: int, tmp_path: Path
) -> None:
    policy = Policy()
    evaluation = await prepared(
        policy, tmp_path, 40, attempts=attempts, concurrency=concurrency
    )
    kept = await samples(evaluation)
    assert [question_of(sample) for sample in kept] == list(range(40))
    assert policy.most == most


async def test_a_failing_sample_is_kept_as_unscored_with_its_reason(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    policy = Policy(frozenset({2}))
    kept = await samples(await prepared(policy, tmp_path, 5, attempts=3, concurrency=6))
    statuses = [kept[n]["rollouts"][0]["status"] for n in (1, 2, 3)]
    assert statuses == ["solved", "unscored", "solved"]
    assert len(kept[2]["rollouts"]) == 3
    assert kept[2]["rollouts"][0]["detail"] == "no answer to 2"
    assert kept[2]["rollouts"][0]["raw_score"] is None
    assert "Evaluation of gcd: no answer to 2" in caplog.text


async def test_an_evaluation_names_what_its_set_lacks_and_is_incomplete(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    evaluation = await prepared(Policy(), tmp_path, 5)
    source = Numbered()
    lacking = plan("gcd", per_task=5)[3][0]

    async def generate(recipe: Recipe) -> Problem:
        if recipe == lacking:
            raise GenerationTimeoutError("gcd: it hangs")
        return await source.generate(recipe)

    evaluation.prepare(generate, {"gcd": "arithmetic"}, {})
    assert len(await samples(evaluation)) == 4
    missing = {
        "recipe": lacking.to_json(),
        "difficulty": None,
        "reason": "gcd: it hangs",
    }
    stored = json.loads((tmp_path / "metrics.json").read_text())
    assert stored["missing_items"] == [missing]
    assert list(read_results(tmp_path).missing_items) == [missing]
    shown = evaluation_table(evaluation.report)
    assert shown.startswith("INCOMPLETE: the shares stand on 4 scored items; 1 of 5")
    assert f"{json.dumps(lacking.to_json(), sort_keys=True)}: gcd: it hangs" in shown
    with pytest.raises(IncompleteEvaluationError, match="1 of 5 items") as raised:
        evaluation.require_complete()
    assert raised.value.exit_status == 3


async def test_beyond_two_percent_without_a_score_an_evaluation_is_incomplete(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tolerated = await prepared(Policy(frozenset({7})), tmp_path / "a", 50)
    await samples(tolerated)
    tolerated.require_complete()
    assert "1 of 50 items could not be made or scored" in caplog.text
    incomplete = await prepared(Policy(frozenset({7, 8})), tmp_path / "b", 50)
    await samples(incomplete)
    with pytest.raises(IncompleteEvaluationError) as raised:
        incomplete.require_complete()
    assert raised.value.exit_status == 3
    assert str(raised.value) == (
        "2 of 50 items could not be made or scored (often: no answer to 7): the results stand on "
        f"the other 48; repeat the command with --env.data_dir_to_save_evals {tmp_path / 'b'} to "
        "complete it"
    )
    again = Policy()
    completed = await prepared(again, tmp_path / "b", 50)
    statuses = [sample["rollouts"][0]["status"] for sample in await samples(completed)]
    assert statuses == ["solved"] * 50
    assert again.ended == 2  # only what was missing is requested
    completed.require_complete()


async def test_prompts_that_are_too_long_are_not_asked_for_again(
    tmp_path: Path,
) -> None:
    policy = Policy(
        frozenset({0, 1}), lambda _: InferenceError(f"{NO_ROOM} in 9 tokens")
    )
    evaluation = await prepared(policy, tmp_path, 5)
    await samples(evaluation)
    with pytest.raises(IncompleteEvaluationError) as raised:
        evaluation.require_complete()
    assert str(raised.value) == (
        "2 of 5 items could not be made or scored (often: the prompt leaves no room in 9 tokens): "
        "the results stand on the other 3; raise --env.max_token_length, or choose tasks and "
        "levels with shorter prompts"
    )


async def test_an_evaluation_without_any_score_is_incomplete(tmp_path: Path) -> None:
    evaluation = await prepared(Policy(frozenset(range(5))), tmp_path, 5)
    with pytest.raises(
        IncompleteEvaluationError, match=r"^5 of 5 items could not be made or scored"
    ):
        await samples(evaluation)


async def test_an_evaluation_without_any_item_says_so(tmp_path: Path) -> None:
    async def fails(_: Recipe) -> Problem:
        raise GenerationError("too large")

    evaluation = await prepared(Policy(), tmp_path, 5)
    evaluation.prepare(fails, {"gcd": "arithmetic"}, {})
    with pytest.raises(
        IncompleteEvaluationError, match=r"^no item of the evaluation set could be"
    ):
        await samples(evaluation)


async def test_an_evaluation_ends_when_the_server_refuses_for_good(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = Policy(
        frozenset(range(10, 60)), functools.partial(InferenceError, is_transient=False)
    )
    evaluation = await prepared(policy, tmp_path, 60, concurrency=1)
    with pytest.raises(InferenceError) as raised:
        await samples(evaluation)
    assert policy.ended < 20
    assert raised.value.exit_status == 2
    assert str(raised.value) == (
        "5 items in a row were refused: no answer to 14; then repeat the command with "
        f"--env.data_dir_to_save_evals {tmp_path} to complete it"
    )
    assert (
        len(
            [m for m in caplog.messages if m.startswith("Evaluation of gcd: no answer")]
        )
        == 1
    )


@pytest.mark.parametrize(
    ("count", "after"), [(60, ["the first 50", "all 60"]), (50, ["all 50"])]
)
async def test_replies_without_answers_are_warned_of(
    count: int, after: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    evaluation = await prepared(Policy(answers=False), tmp_path, count, concurrency=1)
    await samples(evaluation)
    warned = [m for m in caplog.messages if "of the completions of" in m]
    assert [
        m.partition("completions of ")[2].partition(" items")[0] for m in warned
    ] == after
    said = " are empty: the results measure the format, not the model. The model wrote:"
    assert said in warned[0]


async def test_any_other_failure_ends_an_evaluation_and_cancels_its_samples(
    tmp_path: Path,
) -> None:
    policy = Policy(frozenset({19}), error=ZeroDivisionError)
    evaluation = await prepared(policy, tmp_path, 40, concurrency=40)
    with pytest.raises(ZeroDivisionError):
        await samples(evaluation)
    assert policy.ended == 40


async def results(
    folder: Path, *, max_token_length: int, length_limit: int
) -> EvaluationResults:
    evaluation = await prepared(Policy(), folder, 2, max_token_length=max_token_length)
    scoring = ScoringSettings(max_token_length=max_token_length).to_json()
    identity = {"library_versions": {}, "scoring": scoring}
    await evaluation.run(step=None, length_limit=length_limit, identity=identity)
    return read_results(folder)


async def test_another_option_and_another_limit_of_the_trainer_differ(
    tmp_path: Path,
) -> None:
    """A trainer may allow fewer tokens than `max_token_length`, which the length penalty uses."""
    first = await results(tmp_path / "a", max_token_length=200, length_limit=100)
    limit = await results(tmp_path / "b", max_token_length=200, length_limit=50)
    option = await results(tmp_path / "c", max_token_length=400, length_limit=100)
    again = await results(tmp_path / "d", max_token_length=200, length_limit=100)
    assert first.differing(limit) == {"length_limit": (100, 50)}
    assert first.differing(option) == {"max_token_length": (200, 400)}
    assert first.differing(again) == {}
    with pytest.raises(ConfigurationError, match="another max_token_length "):
        await results(tmp_path / "a", max_token_length=400, length_limit=100)


async def test_results_come_in_the_order_of_the_jobs() -> None:
    async def job(number: int) -> int:
        for _ in range(10 - number):
            await asyncio.sleep(0)
        return number

    assert await with_progress([job(n) for n in range(10)], "jobs") == list(range(10))


async def test_jobs_end_when_their_caller_is_cancelled(tmp_path: Path) -> None:
    policy = Policy()
    evaluation = await prepared(policy, tmp_path, 5, concurrency=5)
    waiting = asyncio.create_task(samples(evaluation))
    while policy.most < 5:
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert policy.ended == policy.most == 5


class SometimesBusy(Numbered):
    """Makes no item of one seed the first time."""

    def __init__(self) -> None:
        super().__init__()
        self.missed: list[Recipe] = []

    async def generate(self, recipe: Recipe) -> Problem:
        if recipe == evaluation_recipes(5, ["gcd"], 4)[2] and not self.missed:
            self.missed.append(recipe)
            raise GenerationTimeoutError("the machine is busy")
        return await super().generate(recipe)


async def test_a_failed_item_is_retried_at_the_next_evaluation() -> None:
    items = EvaluationSet(SometimesBusy().generate, plan("gcd", per_task=4))
    assert [len(await items.items()) for _ in range(3)] == [3, 4, 4]


class Stopping(Policy):
    """Returns a completion a request, and none after so many."""

    part_size = 1

    def __init__(self, most: float = math.inf) -> None:
        super().__init__()
        self.asked = self.answered = 0
        self._most = most
        self.stopped = asyncio.Event()

    async def sample(self, question: str, **request: Any) -> list[Completion]:
        if self.asked >= self._most:
            while self.answered < self._most:
                await asyncio.sleep(0)
            self.stopped.set()
            await asyncio.Event().wait()
        self.asked += 1
        completions = await super().sample(question, **request)
        self.answered += 1
        return completions


async def test_an_interruption_changes_nothing_but_what_is_asked_again(
    tmp_path: Path,
) -> None:
    async def evaluated(policy: Policy, folder: str) -> list[dict[str, Any]]:
        evaluation = await prepared(
            policy, tmp_path / folder, 3, attempts=3, concurrency=3
        )
        stored = await samples(evaluation)
        for sample in stored:
            del sample["time"]
            for rollout in sample["rollouts"]:
                del rollout["verify_seconds"]
        return stored

    first, second, whole = Stopping(5), Stopping(), Stopping()
    interrupted = asyncio.create_task(evaluated(first, "parts"))
    await first.stopped.wait()
    interrupted.cancel()
    with pytest.raises(asyncio.CancelledError):
        await interrupted
    in_parts = await evaluated(second, "parts")
    assert (first.answered, second.asked) == (5, 4)
    assert in_parts == await evaluated(whole, "whole")
    assert whole.asked == 9
    metrics = [
        json.loads((tmp_path / folder / "metrics.json").read_text())["results"]
        for folder in ("parts", "whole")
    ]
    assert metrics[0] == metrics[1]
