"""A group keeps its order, and each completion gets the verdict on its own answer."""

from collections import Counter
from typing import get_args

import pytest
from group_values import completion

from reasoning_gym_environment.records import GroupResult, Problem, Recipe, Status
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.scoring.grading import (
    ScoreMode,
    ScoringSettings,
    grade,
    verify_bare,
)

SETTINGS = ScoringSettings(max_token_length=100, length_penalty_start=0.75)


@pytest.fixture(scope="module")
async def problem(pool: TaskPool) -> Problem:
    return await pool.generate(Recipe(task="gcd", seed=2))


async def graded(
    pool: TaskPool, problem: Problem, *texts: str, length: int = 4
) -> GroupResult:
    said = [text.replace("ORACLE", str(problem.oracle)) for text in texts]
    completions = [completion(text, length=length) for text in said]
    result = await grade(problem, completions, pool, SETTINGS)
    assert [attempt.completion for attempt in result.attempts] == completions
    return result


RIGHT = "<think>Let me see.</think><answer>ORACLE</answer>"
WRONG = "<answer>-1</answer>"
NO_ANSWER = "I don't know."
SEVERAL = "<answer>ORACLE</answer> or <answer>-1</answer>"


async def test_every_completion_keeps_its_place_and_its_verdict(
    pool: TaskPool, problem: Problem
) -> None:
    result = await graded(
        pool, problem, NO_ANSWER, RIGHT, SEVERAL, WRONG, RIGHT, NO_ANSWER
    )
    statuses = [attempt.verdict.status.value for attempt in result.attempts]
    assert statuses == [
        "no_answer",
        "solved",
        "several_answers",
        "wrong",
        "solved",
        "no_answer",
    ]
    assert result.rewards == (0.0, 1.0, 0.0, 0.0, 1.0, 0.0)
    oracle = problem.oracle
    answers = [attempt.answer for attempt in result.attempts]
    assert answers == [None, oracle, None, "-1", oracle, None]


async def test_a_group_without_any_answer_needs_no_verifier(
    pool: TaskPool, problem: Problem
) -> None:
    result = await graded(
        pool, problem, NO_ANSWER, "<think>never closed <answer>1</answer>"
    )
    assert {attempt.verdict.status for attempt in result.attempts} == {Status.NO_ANSWER}
    assert result.rewards == (0.0, 0.0)


async def test_only_a_group_that_is_all_right_pays_for_length(
    pool: TaskPool, problem: Problem
) -> None:
    short = await graded(pool, problem, RIGHT, RIGHT, length=72)
    assert short.rewards == (1.0, 1.0)
    long = await graded(pool, problem, RIGHT, RIGHT, length=87)
    assert long.rewards == pytest.approx((0.4, 0.4))
    assert [attempt.verdict.score for attempt in long.attempts] == [1.0, 1.0]
    mixed = await graded(pool, problem, RIGHT, WRONG, RIGHT, length=87)
    assert mixed.rewards == (1.0, 0.0, 1.0)


async def test_scores_format_violations_and_each_answer_are_logged_for_debugging(
    pool: TaskPool, problem: Problem, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await graded(pool, problem, RIGHT, NO_ANSWER, SEVERAL, WRONG)
    assert "gcd" not in caplog.text
    caplog.set_level("DEBUG")
    await graded(pool, problem, RIGHT, NO_ANSWER, SEVERAL, WRONG)
    assert "gcd: 1 of 4 solved, mean reward 0.250" in caplog.text
    assert "gcd: format violation: no_answer" in caplog.text
    assert "gcd: format violation: several_answers" in caplog.text
    assert (
        "gcd: answer '-1': wrong; raw form 0.0, tagged form 0.0, reward 0.000"
        in caplog.text
    )
    assert (
        f"answer {problem.oracle!r}: solved; raw form 1.0, tagged form None"
        in caplog.text
    )


async def test_a_solved_answer_earns_full_credit_but_in_the_librarys_mode(
    pool: TaskPool, problem: Problem
) -> None:
    for form in ("**{}**", "${}$", "\\boxed{{{}}}", "{}.", "Answer: {}"):
        texts = (form.format(problem.oracle), "**wrong**")
        completions = [completion(f"<answer>{text}</answer>") for text in texts]
        earned = {
            mode: await grade(
                problem,
                completions,
                pool,
                ScoringSettings(max_token_length=1000, score_mode=mode),
            )
            for mode in get_args(ScoreMode)
        }
        right, wrong = earned["library"].attempts
        assert (right.verdict.score or 0.0) < 1.0, form
        assert earned["library"].rewards == (right.verdict.score, wrong.verdict.score)
        for mode in ("partial", "threshold", "binary"):
            assert earned[mode].rewards[0] == 1.0, (form, mode)
            assert earned[mode].attempts[0].verdict.score == right.verdict.score
        assert earned["partial"].rewards[1] == wrong.verdict.score


async def test_with_a_threshold_every_answer_earns_the_librarys_number(
    pool: TaskPool, problem: Problem
) -> None:
    settings = ScoringSettings(max_token_length=1000, solved_threshold=0.5)
    group = await grade(
        problem, [completion(f"<answer>**{problem.oracle}**</answer>")], pool, settings
    )
    [attempt] = group.attempts
    assert group.rewards == (attempt.verdict.score,)
    assert group.rewards[0] < 1.0


async def test_an_answer_at_a_tasks_bound_earns_its_share_however_it_is_written(
    pool: TaskPool,
) -> None:
    problem = await pool.generate(Recipe(task="propositional_logic", seed=5))
    texts = [f"<answer>{form}</answer>" for form in ("P ∧ ¬S", "**P ∧ ¬S**")]
    settings = ScoringSettings(max_token_length=1000)
    group = await grade(problem, [*map(completion, texts)], pool, settings)
    assert group.solved == 2
    bare, bold = group.rewards
    assert bare == bold == group.attempts[0].verdict.score


@pytest.mark.parametrize(
    ("task", "seed"),
    [
        *(
            ("emoji_mystery", 3),
            ("sentence_reordering", 5),
            ("fraction_simplification", 3),
        ),
        *(
            ("knights_knaves", 3),
            ("polynomial_multiplication", 3),
            ("simple_integration", 3),
        ),
        ("intermediate_integration", 3),
    ],
)
async def test_a_right_answer_that_has_marks_of_its_own_is_solved_in_other_marks(
    pool: TaskPool, task: str, seed: int
) -> None:
    problem = await pool.generate(Recipe(task=task, seed=seed))
    forms = (
        "**{}**",
        "\\boxed{{{}}}",
        "```\n{}\n```",
        "The answer is {}",
        "The answer is: **{}**",
    )
    completions = [
        completion(f"<answer>{form.format(problem.oracle)}</answer>") for form in forms
    ]
    settings = ScoringSettings(max_token_length=1000)
    group = await grade(problem, completions, pool, settings)
    assert group.solved == len(forms)
    assert group.rewards == (1.0,) * len(forms)


async def test_bare_answers_are_given_in_the_format_of_the_pool(
    problem: Problem,
) -> None:
    oracle = str(problem.oracle)
    answers = [oracle, f"{{{oracle}}}", f"{{{oracle}", "-1"]
    settings = PoolSettings(processes=1, answer_format="boxed")
    async with TaskPool(settings, Counter()) as boxed_pool:
        verdicts = await verify_bare(problem, answers, boxed_pool)
    assert [verdict.status.value for verdict in verdicts] == [
        "solved",
        "wrong",
        "no_answer",
        "wrong",
    ]


async def test_bare_answers_have_the_verdicts_of_the_completions_that_give_them(
    pool: TaskPool, problem: Problem
) -> None:
    oracle = str(problem.oracle)
    answers = [f" {oracle}\n", f"<answer>{oracle}</answer>", "", f"{oracle}</think>"]
    verdicts = await verify_bare(problem, [*answers, "-1"], pool)
    assert [verdict.status.value for verdict in verdicts] == [
        "solved",
        "several_answers",
        "no_answer",
        "no_answer",
        "wrong",
    ]
