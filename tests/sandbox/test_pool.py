"""Answers that hang, exit, eat memory or kill cost their own rollout and nothing else."""

import asyncio
import dataclasses
import os
import pickle
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from disabled_protections import Unsandboxed, Unscreened
from worker_stock import WorkerStock

from reasoning_gym_environment.errors import GenerationError, PoolClosedError
from reasoning_gym_environment.records import Problem, Recipe, Status, Verdict
from reasoning_gym_environment.sandbox import pool as pool_module
from reasoning_gym_environment.sandbox.pool import PoolSettings, TaskPool
from reasoning_gym_environment.tasks.facts import EXECUTES_ANSWERS

pytestmark = pytest.mark.processes

HANGS = "9**9**9**9"
SLEEPS = "__import__('time').sleep(1000)"
"""A hang that takes no processor time."""

EXITS = "__import__('os')._exit(3)"
KILLS_ITS_PARENT = "__import__('os').kill(__import__('os').getppid(),9)"
_KILL_HOST = """
import os, signal
def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
pid = os.getpid()
while parent(parent(pid)) != TESTS:  # the fork server's parent
    pid = parent(pid)
os.kill(pid, signal.SIGKILL)
"""
FAILURES = {
    EXITS: Status.CRASHED,
    "'a'*10**10": Status.WRONG,  # these verifiers catch the MemoryError themselves
    "[0]*10**11": Status.WRONG,
}
RAISES = ["1/0", "__import__('no_such_module')", "__import__('sys').exit(0)"]
NEVER_ENDS = Recipe(
    task="tower_of_hanoi", seed=2, parameters={"min_disks": 60, "max_disks": 60}
)
"""All moves of 60 disks are listed, thousands of millions."""

SETTINGS = PoolSettings(processes=1, generation_timeout=2.0, verify_timeout=2.0)


COMPARES_TEXTS_FIRST = {"binary_matrix", "spiral_matrix", "string_insertion"}
"""Their verifiers evaluate no answer that is the oracle to the letter."""


@pytest.fixture(scope="module")
def counts() -> Counter[str]:
    return Counter()


@pytest.fixture(scope="module")
async def unsandboxed() -> AsyncIterator[Unsandboxed]:
    server = Unsandboxed()
    yield server
    await server.close()


@pytest.fixture(scope="module")
async def impatient(
    unsandboxed: Unsandboxed, counts: Counter[str]
) -> AsyncIterator[TaskPool]:
    """What forks alone achieve: no screen, no sandbox, two seconds an answer.

    One process of each role, so that all requests meet the same one.
    """
    async with TaskPool(SETTINGS, counts, start_worker=unsandboxed.start) as pool:
        yield pool


@pytest.fixture(scope="module")
async def unscreened(unscreened_server: Unscreened) -> AsyncIterator[TaskPool]:
    """What stands behind the screen."""
    settings = dataclasses.replace(SETTINGS, verify_timeout=1.0)
    async with TaskPool(
        settings, Counter(), start_worker=unscreened_server.start
    ) as pool:
        yield pool


@pytest.fixture(scope="module")
async def gcd(pool: TaskPool) -> Problem:
    return await pool.generate(Recipe(task="gcd", seed=2))


def outcome(
    verdict: Verdict,
) -> tuple[float | None, Status, float | None, float | None]:
    """All of a verdict but its time."""
    return verdict.score, verdict.status, verdict.raw_score, verdict.tagged_score


def oracle(problem: Problem) -> str:
    assert problem.oracle is not None
    return problem.oracle


def runs(code: str) -> str:
    """An expression that runs statements."""
    builtins = "__import__('builtins')"
    return (
        f"{builtins}.exec({builtins}.bytes.fromhex('{code.encode().hex()}').decode())"
    )


@pytest.mark.parametrize("task", sorted(EXECUTES_ANSWERS))
async def test_an_answer_that_fails_raises_or_patches_the_library_costs_the_others_nothing(
    impatient: TaskPool, pool: TaskPool, task: str, tmp_path: Path
) -> None:
    problem = await pool.generate(Recipe(task=task, seed=2))
    honest = [oracle(problem), "0", "x + 1", "nonsense"]
    expected = [outcome(v) for v in await impatient.verify(problem, honest)]
    assert expected[0][1] is Status.SOLVED
    assert expected[1][1] is not Status.SOLVED
    hangs = HANGS if task in ("binary_matrix", "puzzle24") else SLEEPS
    failures = {hangs: Status.TIMEOUT, **FAILURES}
    patches = runs(
        "import os, reasoning_gym.factory as f; "
        "[setattr(c, 'score_answer', lambda *a: 1.0) for c, _ in f.DATASETS.values()]; "
        f"os.path.exists({str(tmp_path)!r} + '/ran') or os.mkdir({str(tmp_path)!r} + '/ran')"
    )
    answers = [*honest[:1], *failures, *RAISES, patches, *honest[1:]]
    verdicts = dict(zip(answers, await impatient.verify(problem, answers), strict=True))
    after = await impatient.verify(problem, honest)
    assert [outcome(verdicts[answer]) for answer in honest] == expected
    assert [outcome(verdict) for verdict in after] == expected
    for answer, status in failures.items():
        assert verdicts[answer].status is status, answer
        assert verdicts[answer].score <= expected[-1][0], "more than nonsense earns"
    for answer in RAISES:
        statuses = {Status.WRONG, Status.VERIFIER_ERROR}
        statuses |= {Status.CRASHED} if "exit" in answer else set()
        assert verdicts[answer].status in statuses
        assert verdicts[answer].score is not None
        assert verdicts[answer].score < 0.5
    assert (tmp_path / "ran").exists(), (
        "nothing was patched: this test shows less than it says"
    )


@pytest.mark.parametrize("task", sorted(EXECUTES_ANSWERS))
async def test_the_screen_rejects_what_must_not_be_evaluated(
    pool: TaskPool, task: str
) -> None:
    problem = await pool.generate(Recipe(task=task, seed=2))
    hostile = [
        HANGS,
        SLEEPS,
        *FAILURES,
        KILLS_ITS_PARENT,
        "(lambda: 1)()",
        "open('/tmp/x','w')",
    ]
    right, *rejected = await pool.verify(problem, [oracle(problem), *hostile])
    assert right.status is Status.SOLVED
    for answer, verdict in zip(hostile, rejected, strict=True):
        assert (verdict.score, verdict.status) == (0.0, Status.REJECTED), answer
        assert verdict.detail


async def test_behind_the_screen_an_answer_touches_no_file_and_no_process(
    unscreened: TaskPool, pool: TaskPool, tmp_path: Path
) -> None:
    problem = await pool.generate(Recipe(task="binary_matrix", seed=2))
    hostile = [
        f"open('{tmp_path}/file', 'w')",
        f"__import__('os').mkdir('{tmp_path}/folder')",
        f"__import__('os').fork() or __import__('os').mkdir('{tmp_path}/forked')",
        KILLS_ITS_PARENT,
        runs(_KILL_HOST.replace("TESTS", str(os.getpid()))),
    ]
    before = set(unscreened.pids)
    right, *others = await unscreened.verify(problem, [oracle(problem), *hostile])
    assert right.status is Status.SOLVED
    assert all(verdict.score == 0.0 for verdict in others)
    assert list(tmp_path.iterdir()) == []
    assert set(unscreened.pids) == before


async def test_an_answer_that_kills_its_parent_costs_the_others_nothing(
    impatient: TaskPool, pool: TaskPool
) -> None:
    problem = await pool.generate(Recipe(task="binary_matrix", seed=2))
    honest = [oracle(problem), "[[0]]"]
    expected = [outcome(v) for v in await impatient.verify(problem, honest)]
    right, killer, wrong = await impatient.verify(
        problem, [honest[0], KILLS_ITS_PARENT, honest[1]]
    )
    assert [outcome(right), outcome(wrong)] == expected
    assert (killer.score, killer.status) == (0.0, Status.CRASHED)


async def test_an_answer_that_kills_its_host_costs_its_own_rollout_and_the_host_is_replaced(
    impatient: TaskPool, pool: TaskPool, counts: Counter[str]
) -> None:
    problem = await pool.generate(Recipe(task="binary_matrix", seed=2))
    honest = [oracle(problem), "[[0]]"]
    expected = [outcome(v) for v in await impatient.verify(problem, honest)]
    before, restarts = set(impatient.pids), counts["sandbox/restarts"]
    killing = runs(_KILL_HOST.replace("TESTS", str(os.getpid())))
    right, killer, wrong = await impatient.verify(
        problem, [honest[0], killing, honest[1]]
    )
    assert [outcome(right), outcome(wrong)] == expected
    assert (killer.score, killer.status) == (None, Status.UNSCORED)
    assert "twice" in killer.detail
    assert counts["sandbox/restarts"] == restarts + 3
    assert len(set(impatient.pids)) == len(before)
    assert len(before - set(impatient.pids)) == 1


@pytest.mark.parametrize("junk", [r"b'\xff'*37", r"b'\x00'*5", r"b'\x00'*100"])
async def test_an_answer_that_writes_junk_to_its_reply_takes_no_other_with_it(
    impatient: TaskPool, pool: TaskPool, counts: Counter[str], junk: str
) -> None:
    problem = await pool.generate(Recipe(task="binary_matrix", seed=2))
    forger = (
        "[__import__('os').write(fd, " + junk + ") for fd in range(3, 64)"
        " if __import__('os').path.exists('/proc/self/fd/%d' % fd)"
        " and 'socket' in __import__('os').readlink('/proc/self/fd/%d' % fd)]"
    )
    restarts = counts["sandbox/restarts"]
    right, forged, wrong = await impatient.verify(
        problem, [oracle(problem), forger, "[[0]]"]
    )
    assert right.status is Status.SOLVED
    assert wrong.status is Status.WRONG
    assert forged.score is not None
    assert 0.0 <= forged.score < 0.5
    assert counts["sandbox/restarts"] == restarts, "the host was lost"


async def test_an_answer_that_edits_its_entry_leaves_the_next_answers_entry_as_it_was(
    impatient: TaskPool, pool: TaskPool
) -> None:
    problem = await pool.generate(Recipe(task="spiral_matrix", seed=2))
    edits = "__import__('sys')._getframe(1).f_locals['entry'].update(answer='hacked') or [0]"
    _, hacked, right = await impatient.verify(
        problem, [edits, "hacked", oracle(problem)]
    )
    assert hacked.status is not Status.SOLVED
    assert right.status is Status.SOLVED


async def test_a_hang_where_nothing_is_executed_costs_the_others_nothing(
    impatient: TaskPool, pool: TaskPool
) -> None:
    problem = await pool.generate(Recipe(task="rubiks_cube", seed=2))
    honest = ["R", "U U' F", "nonsense"]
    expected = [outcome(v) for v in await impatient.verify(problem, honest)]
    *first, hung, last = await impatient.verify(
        problem, [*honest[:2], "R9999999", honest[2]]
    )
    assert [outcome(v) for v in (*first, last)] == expected
    assert (hung.score, hung.status) == (0.0, Status.TIMEOUT)


async def test_a_right_answer_counts_where_refusing_a_wrong_one_takes_too_long(
    stock: WorkerStock,
) -> None:
    parameters = {"problem_types": ["trigonometric"], "problem_type_weights": [1.0]}
    slow = Recipe(task="intermediate_integration", seed=494, parameters=parameters)
    settings = PoolSettings(processes=1, verify_timeout=3.0)
    async with TaskPool(settings, Counter(), start_worker=stock.lend) as pool:
        problem = await pool.generate(slow)
        right, wrong = await pool.verify(problem, [problem.oracle or "", "0"])
    assert (right.status, wrong.status) == (Status.SOLVED, Status.TIMEOUT)


async def test_equal_answers_share_a_verdict_and_only_a_bare_one_without_full_score_gets_tags(
    pool: TaskPool, gcd: Problem
) -> None:
    right = oracle(gcd)
    verdicts = await pool.verify(gcd, ["junk", right, "junk", right, right])
    assert [v.status is Status.SOLVED for v in verdicts] == [
        False,
        True,
        False,
        True,
        True,
    ]
    assert verdicts[1] is verdicts[3] is verdicts[4]
    assert verdicts[0] is verdicts[2]
    assert (verdicts[1].raw_score, verdicts[1].tagged_score) == (1.0, None)
    assert (verdicts[0].raw_score, verdicts[0].tagged_score) == (0.0, 0.0)
    assert await pool.verify(gcd, []) == []


async def test_equal_answers_are_verified_once(
    impatient: TaskPool, pool: TaskPool, tmp_path: Path
) -> None:
    problem = await pool.generate(Recipe(task="binary_matrix", seed=2))
    leaves_a_mark = f"__import__('tempfile').mkdtemp(dir='{tmp_path}') and None"
    await impatient.verify(problem, [leaves_a_mark])
    once = len(list(tmp_path.iterdir()))
    await impatient.verify(problem, [leaves_a_mark] * 5)
    assert len(list(tmp_path.iterdir())) == 2 * once > 0


async def test_odd_text_is_a_wrong_answer_like_any_other(
    pool: TaskPool, gcd: Problem
) -> None:
    texts = ["\ud800", "\x00", "a\u2028b", "9" * 100_000, "<answer>"]
    *odd, right = await pool.verify(gcd, [*texts, oracle(gcd)])
    assert {verdict.score for verdict in odd} == {0.0}
    assert {verdict.status for verdict in odd} <= {Status.WRONG, Status.VERIFIER_ERROR}
    assert right.status is Status.SOLVED


async def test_a_problem_that_takes_too_long_is_an_error_counted_and_the_next_is_made(
    impatient: TaskPool, gcd: Problem, counts: Counter[str]
) -> None:
    timeouts, restarts = counts["generation/timeouts"], counts["sandbox/restarts"]
    with pytest.raises(GenerationError, match="tower_of_hanoi: no reply within 2 s"):
        await impatient.generate(NEVER_ENDS)
    assert counts["generation/timeouts"] == timeouts + 1
    assert counts["sandbox/restarts"] == restarts + 1
    assert (await impatient.generate(gcd.recipe)).question == gcd.question


async def test_a_problem_the_library_cannot_make_is_an_error_that_says_why(
    impatient: TaskPool, gcd: Problem, counts: Counter[str]
) -> None:
    errors, before = counts["generation/errors"], set(impatient.pids)
    with pytest.raises(
        GenerationError, match=r"no_such_task: UnknownTaskError: .*unknown task"
    ):
        await impatient.generate(Recipe(task="no_such_task", seed=2))
    with pytest.raises(GenerationError, match=r"gcd: TypeError: .*no_such_parameter"):
        await impatient.generate(
            Recipe(task="gcd", seed=2, parameters={"no_such_parameter": 1})
        )
    assert counts["generation/errors"] == errors + 2
    assert set(impatient.pids) == before
    assert (await impatient.generate(gcd.recipe)).question == gcd.question


async def test_callers_that_are_cancelled_leave_replies_with_those_they_belong_to(
    impatient: TaskPool, pool: TaskPool
) -> None:
    recipes = [Recipe(task="sudoku", seed=seed) for seed in range(2, 14, 2)]
    made = [await pool.generate(recipe) for recipe in recipes]
    given_up = [asyncio.create_task(impatient.generate(r)) for r in recipes[:3]]
    given_up += [asyncio.create_task(impatient.generate(made[0].recipe))]
    asked = [asyncio.create_task(impatient.generate(r)) for r in recipes]
    await asyncio.sleep(0.01)
    for task in given_up:
        task.cancel()
    assert [p.question for p in await asyncio.gather(*asked)] == [
        p.question for p in made
    ]
    ended = await asyncio.gather(*given_up, return_exceptions=True)
    assert asyncio.CancelledError in {type(e) for e in ended}


@pytest.mark.parametrize("task", sorted(EXECUTES_ANSWERS - COMPARES_TEXTS_FIRST))
async def test_code_in_an_oracle_runs_nowhere_but_where_nothing_is_contained(
    impatient: TaskPool, unscreened: TaskPool, pool: TaskPool, tmp_path: Path, task: str
) -> None:
    """The zygote scores the oracle first, and a recipe may have put it there."""
    problem = await pool.generate(Recipe(task=task, seed=2))
    code = runs(f"import os; os.makedirs('{tmp_path}/ran', exist_ok=True)")
    entry = pickle.dumps({**pickle.loads(problem.entry), "answer": code})
    poisoned = dataclasses.replace(problem, entry=entry, oracle=code)
    for contained in (pool, unscreened):
        [verdict] = await contained.verify(poisoned, ["0"])
        assert verdict.status is not Status.CRASHED
        assert list(tmp_path.iterdir()) == []
    await impatient.verify(poisoned, ["0"])
    assert (tmp_path / "ran").exists(), "the code did not run: this test shows nothing"


async def test_an_oracle_that_hangs_is_a_timeout_and_no_host_is_lost(
    unscreened: TaskPool, pool: TaskPool
) -> None:
    problem = await pool.generate(Recipe(task="puzzle24", seed=2))
    entry = pickle.dumps({**pickle.loads(problem.entry), "answer": HANGS})
    before = set(unscreened.pids)
    [verdict] = await unscreened.verify(
        dataclasses.replace(problem, entry=entry), ["1"]
    )
    assert verdict.status is Status.TIMEOUT
    assert set(unscreened.pids) == before


async def test_answers_behind_one_that_runs_out_of_time_are_scored_in_the_sandbox_as_well(
    unscreened: TaskPool, pool: TaskPool
) -> None:
    problem = await pool.generate(Recipe(task="binary_matrix", seed=2))
    answers = [HANGS, oracle(problem), f"{HANGS}+1", "[[0]]"]
    verdicts = await unscreened.verify(problem, answers)
    statuses = [Status.TIMEOUT, Status.SOLVED, Status.TIMEOUT, Status.WRONG]
    assert [verdict.status for verdict in verdicts] == statuses


async def test_a_host_refuses_a_recipe_as_a_generator_does(
    pool: TaskPool, gcd: Problem
) -> None:
    before = set(pool.pids)
    for task, parameters in (
        ("gcd", {"max_value": 10**300}),
        ("gcd", {"x": 1}),
        ("composite", {}),
    ):
        recipe = Recipe(task=task, seed=2, parameters=parameters)
        [verdict] = await pool.verify(
            dataclasses.replace(gcd, recipe=recipe), [oracle(gcd)]
        )
        assert (verdict.score, verdict.status) == (0.0, Status.VERIFIER_ERROR)
    assert set(pool.pids) == before


async def test_a_verification_that_is_cancelled_leaves_the_next_verdicts_right(
    impatient: TaskPool, pool: TaskPool, gcd: Problem
) -> None:
    puzzle = await pool.generate(Recipe(task="puzzle24", seed=2))
    waiting = asyncio.create_task(impatient.verify(puzzle, [SLEEPS, oracle(puzzle)]))
    await asyncio.sleep(0.2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    for answers in (["wrong", oracle(gcd)], ["wrong", "worse", oracle(gcd)]):
        *wrong, right = await impatient.verify(gcd, answers)
        assert right.status is Status.SOLVED
        assert {v.status for v in wrong} == {Status.WRONG}


async def test_a_closed_pool_takes_no_work(gcd: Problem) -> None:
    pool = TaskPool(SETTINGS, Counter())
    await pool.close()
    with pytest.raises(PoolClosedError, match="closed"):
        await pool.generate(gcd.recipe)
    with pytest.raises(PoolClosedError, match="closed"):
        await pool.verify(gcd, ["1"])


async def test_no_answer_is_scored_after_the_deadline_of_its_group(
    unsandboxed: Unsandboxed, pool: TaskPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "GROUP_SECONDS", 6.0)
    problem = await pool.generate(Recipe(task="binary_matrix", seed=2))
    settings = dataclasses.replace(SETTINGS, verify_timeout=1.0)
    async with TaskPool(settings, Counter(), start_worker=unsandboxed.start) as hurried:
        [alone] = await hurried.verify(problem, [oracle(problem)])
        answers = [f"{SLEEPS} or {number}" for number in range(1, 4)]
        verdicts = await hurried.verify(problem, [*answers, oracle(problem)])
    assert alone.status is Status.SOLVED
    # An answer that was not tried is no wrong one: the others took its time.
    assert [verdict.status for verdict in verdicts] == [
        Status.TIMEOUT,
        *[Status.UNSCORED] * 3,
    ]
