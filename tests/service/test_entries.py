"""reasoning-gym's own rows after JSON: the same verdicts, or a rejection."""

import asyncio
import json
import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from reward_requests import Post, row

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.gym.asynchronous import Scorable
from reasoning_gym_environment.records import Problem, Score, Status
from reasoning_gym_environment.service._scoring import Scorer
from reasoning_gym_environment.service._targets import entry_target
from reasoning_gym_environment.tasks.facts import UNTRUSTED_ENTRIES
from reasoning_gym_environment.tasks.item_checks import item_fault

pytestmark = pytest.mark.asyncio(loop_scope="session")


def after_json(problem: Problem) -> Any:
    """The library's entry as a row of a file holds it."""
    return json.loads(json.dumps(pickle.loads(problem.entry)))


def answers(problem: Problem, other: Problem) -> list[str]:
    """A right answer, another item's, one that is nearly right, numbers in lists, and junk."""
    oracle = problem.oracle or ""
    texts = [
        oracle,
        other.oracle or "",
        f"{oracle} ",
        oracle[:-1],
        oracle.upper(),
        "[[1, 2], 3]",
    ]
    return [
        f"<answer>{text}</answer>" for text in [*texts, "1 2 3", "no"] if text.strip()
    ]


def told(scores: Sequence[Score]) -> list[tuple[float | None, str]]:
    return [(score.score, score.status.value) for score in scores]


async def compared(
    gym: AsyncReasoningGym, problem: Problem, other: Problem
) -> tuple[list[tuple[float | None, str]], list[tuple[float | None, str]]]:
    """Verdicts by the entry itself, and by what is left of it after JSON."""
    texts = answers(problem, other)
    again = entry_target(after_json(problem)).entry_problem()
    assert again.question == problem.question
    scored = [
        await gym.score_many([(p, text) for text in texts]) for p in (problem, again)
    ]
    return told(scored[0]), told(scored[1])


@pytest.mark.nightly
async def test_every_task_scores_its_entries_the_same_after_json(
    gym: AsyncReasoningGym, problems: dict[str, list[Problem]]
) -> None:
    pairs = [
        (made[i], made[1 - i])
        for task, made in problems.items()
        if task not in UNTRUSTED_ENTRIES
        for i in (0, 1)
    ]
    found = await asyncio.gather(*(compared(gym, *pair) for pair in pairs))
    changed = {
        problem.recipe.task: (before, after)
        for (problem, _), (before, after) in zip(pairs, found, strict=True)
        if before != after
    }
    assert changed == {}
    assert len({problem.recipe.task for problem, _ in pairs}) == 95
    for made in problems.values():
        assert [item_fault(p.recipe.task, after_json(p)) for p in made] == [
            p.fault for p in made
        ]
    unpaid = {p.recipe.task: v[0] for (p, _), (v, _) in zip(pairs, found, strict=True)}
    assert {task: first for task, first in unpaid.items() if first[0] != 1.0} == {}


@pytest.mark.parametrize(
    "task", ["arc_agi", "rearc", "complex_arithmetic", "knight_swap"]
)
async def test_a_row_that_json_changed_earns_the_correct_reward(
    post: Post, gym: AsyncReasoningGym, task: str
) -> None:
    problem, other = await gym.problems(task, count=2)
    entry = after_json(problem)
    good, bad = [
        await post(
            "/verify", row(problem.question, f"<answer>{text}</answer>", **entry)
        )
        for text in (problem.oracle, other.oracle)
    ]
    assert (good.status, good.body["reward"], good.body["status"]) == (
        200,
        1.0,
        "solved",
    )
    assert (good.body["task_name"], good.body["metadata"]) == (task, entry["metadata"])
    assert bad.status == 200
    assert bad.body["reward"] < 0.5


async def test_an_entry_may_be_a_label(post: Post, problem: Problem) -> None:
    answer = f"<answer>{problem.oracle}</answer>"
    label = json.dumps(after_json(problem))
    assert (await post("/slime", {"response": answer, "label": label})).body == 1.0
    reply = await post(
        "/score", {"entry": after_json(problem), "completions": [answer, "4"]}
    )
    assert [s["status"] for s in reply.body["scores"]] == ["solved", "no_answer"]


BROKEN: list[tuple[str, dict[str, Any], str]] = [
    (
        "rearc",
        {"output": [[0]]},
        "earns 0.05 (wrong) by the default rearc instead of 1",
    ),
    (
        "sudoku",
        {"solution": None},
        "(verifier_error) by the default sudoku instead of 1",
    ),
    (
        "gcd",
        {"source_dataset": "gdc"},
        "of reasoning-gym, got 'gdc'; did you mean gcd?",
    ),
    (
        "gcd",
        {"source_dataset": ["gcd"]},
        "must be a task of reasoning-gym, got ['gcd']",
    ),
    (
        "simple_integration",
        {"integrand": "__import__('os').system('true')"},
        "entries of simple_integration are not scored: its verifier evaluates what the entry "
        "holds; send the recipe of a problem made by this package instead",
    ),
    *(
        (
            task,
            {},
            f"entries of {task} are not scored: its verifier evaluates what the entry holds",
        )
        for task in (
            "bitwise_arithmetic",
            "number_sorting",
            "polynomial_multiplication",
        )
    ),
    (
        "rush_hour",
        {},
        "entries of rush_hour are not scored: the entry has no answer of its own",
    ),
]


@pytest.mark.parametrize(("task", "change", "says"), BROKEN)
async def test_a_broken_entry_is_rejected_without_a_reward(
    post: Post, gym: AsyncReasoningGym, task: str, change: dict[str, Any], says: str
) -> None:
    [problem] = await gym.problems(task)
    entry = after_json(problem)
    entry["metadata"] |= change
    reply = await post(
        "/verify", row("", f"<answer>{problem.oracle}</answer>", **entry)
    )
    assert reply.status == 422
    assert says in reply.body["error"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"answer": None},
            "answer is null, so this gcd entry can't be checked; send the recipe",
        ),
        (
            {"answer": "2\n"},
            "its own answer, '2\\n', earns 0.0 (wrong) by the default gcd",
        ),
        ({"question": None}, "entry: question must be a string, got None"),
        ({"metadata": None}, "the row needs a recipe, or reasoning-gym's question"),
        (
            {"metadata": {}},
            "metadata.source_dataset must be a task of reasoning-gym, got None",
        ),
    ],
)
async def test_an_incomplete_row_is_rejected(
    post: Post, change: dict[str, Any], says: str
) -> None:
    entry = {
        "question": "?",
        "answer": "2",
        "metadata": {"source_dataset": "gcd"},
    } | change
    reply = await post("/verify", row("?", "<answer>2</answer>", **entry))
    assert reply.status == 422
    assert says in reply.body["error"]


class Overloaded(AsyncReasoningGym):
    """Starts no process, and gives no verdict on anything."""

    def __init__(self, status: Status) -> None:
        super().__init__(processes=1)
        self._status = status

    async def score_group(
        self, problem: Scorable, completions: Sequence[str]
    ) -> list[Score]:
        return [Score(score=0.0, status=self._status, detail="too much")] * len(
            completions
        )


@pytest.mark.parametrize(
    "status", [Status.TIMEOUT, Status.OUT_OF_MEMORY, Status.CRASHED]
)
async def test_an_entry_whose_answer_gets_no_verdict_is_unscored(
    status: Status,
) -> None:
    entry = {"question": "?", "answer": "2", "metadata": {"source_dataset": "gcd"}}
    [score] = await Scorer(Overloaded(status)).score(
        entry_target(entry), ["<answer>4</answer>"]
    )
    assert (score.score, score.status) == (None, Status.UNSCORED)
    assert (
        score.detail
        == f"the entry's own answer has no verdict ({status.value}): too much"
    )
