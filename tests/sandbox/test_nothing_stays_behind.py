"""All hostile answers in one verifier host, then every task: scored as in fresh processes.

This file is also the script that it runs: a host of its own, where the children can be seen.
"""

import asyncio
import json
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hostile_answers import CASES, hostile_answer

from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox._protocol import EntryAnswers
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks.facts import EXECUTES_ANSWERS

pytestmark = pytest.mark.processes

MORE = [
    *(
        "nan",
        "1e999999999",
        "1e-400",
        "[1e308, 1e309]",
        "Decimal('1e-99')",
        "((((",
        "\0",
        "\ud800",
    ),
    *("9" * 5000, "[" * 500, '{"a": ' * 300, "-" * 3000, "A" * 10**5, "a,b" * 5000),
    *("0." + "3" * 400, "\u2227\u2228\u00ac" * 99),
]
JUNK = ("x", "12345", "<answer>7</answer>", "[[1, 2], [3, 4]]", "(1 + 2) * 3", "no")

UNTOLD = {
    *(
        "arc_agi",
        "figlet_font",
        "group_anagrams",
        "rush_hour",
        "spell_backward",
        "word_ladder",
    ),
    *("arc_1d", "string_manipulation", "codeio"),
}
"""Their datasets are too large to send, can't be pickled, or share data."""


def request(problem: Problem, answers: list[str], timeout: float) -> EntryAnswers:
    return EntryAnswers(
        task=problem.recipe.task,
        parameters=problem.recipe.parameters,
        entry=problem.entry,
        answers=tuple(dict.fromkeys(answers)),
        timeout=timeout,
        patience=60.0,
        group_timeout=60.0,
    )


@pytest.mark.nightly
async def test_after_all_hostile_answers_every_task_scores_as_in_fresh_processes(
    pool: TaskPool, problems: dict[str, list[Problem]], tmp_path: Path
) -> None:
    items = dict.fromkeys((case["task"], case["seed"]) for case in CASES)
    generated = (pool.generate(Recipe(task=task, seed=seed)) for task, seed in items)
    asked = dict(zip(items, await asyncio.gather(*generated), strict=True))
    hostile = []
    for case in CASES:
        problem = asked[case["task"], case["seed"]]
        answer = hostile_answer(case, problem, tmp_path / "canary")
        hostile.append(request(problem, [answer, "x"], 0.5))
    for made in problems.values():
        foreign = [
            answer
            for task in ("sudoku", "jugs")
            for answer in [problems[task][0].oracle]
        ]
        hostile.append(request(made[0], [*MORE, *filter(None, foreign)], 0.5))
    honest = [
        request(
            problem, [problem.oracle or "none", made[0].oracle or "none", *JUNK], 20.0
        )
        for made in problems.values()
        for problem in made
    ]
    (tmp_path / "requests").write_bytes(pickle.dumps((hostile, honest)))
    command = [sys.executable, "-W", "ignore", __file__, str(tmp_path / "requests")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        command, capture_output=True, check=False, timeout=500, env=env
    )
    assert done.returncode == 0, done.stderr[-2000:].decode()
    different, shared, untold, unread = json.loads(
        done.stdout.decode().splitlines()[-1]
    )
    assert different == []
    assert set(untold) == UNTOLD
    assert unread == []
    assert shared > len(honest), "too few groups met a child that had scored others"
    assert [path.name for path in tmp_path.iterdir()] == ["requests"]


def main() -> None:
    """Print what was found, as JSON.

    The tasks whose scores differ; how many groups met a worker that had scored others; the tasks
    whose datasets can't be sent to a worker; those whose datasets a worker can't load.
    """
    from reasoning_gym_environment.sandbox._verifier_host import (
        Group,
        PersistentWorker,
        VerifierHost,
        warm_up,
    )
    from reasoning_gym_environment.tasks.datasets import Datasets

    hostile, honest = pickle.loads(Path(sys.argv[1]).read_bytes())
    datasets = Datasets()
    warm_up(datasets)
    for one in honest:
        datasets.get(one.task, one.parameters)
    silent, _ = os.pipe()

    def scores(host: VerifierHost, asked: EntryAnswers) -> list[Any]:
        found = host.verify(asked, silent)
        return [(s.outcome, repr(s.raw), repr(s.tagged), s.errors) for s in found]

    def fresh(asked: EntryAnswers) -> list[Any]:
        host = VerifierHost(datasets)
        try:
            return scores(host, asked)
        finally:
            if host._worker is not None:
                host._worker.end()

    expected = [fresh(asked) for asked in honest]
    # Its child is told of each dataset.
    old, different, shared = VerifierHost(Datasets()), [], 0

    def compare(asked: EntryAnswers, right: list[Any]) -> None:
        nonlocal shared
        child = old._worker
        if scores(old, asked) != right:
            different.append(asked.task)
        shared += old._worker is child

    reads = [i for i, asked in enumerate(honest) if asked.task not in EXECUTES_ANSWERS]
    for number, attack in enumerate(hostile):
        scores(old, attack)
        i = reads[number % len(reads)]
        compare(honest[i], expected[i])
    for asked, right in zip(honest, expected, strict=True):
        compare(asked, right)
    child, untold, unread = PersistentWorker(Datasets(), honest[0]), [], []
    for i in reads:
        asked = honest[i]
        dataset = datasets.get(asked.task, asked.parameters)
        group = Group(dataset=dataset, request=asked, deadline=math.inf, parent=silent)
        dataset_pickle = child.dataset_pickle(group)
        if dataset_pickle is None:
            untold.append(asked.task)
            continue
        [score] = child.score(group, ["x"], dataset_pickle=dataset_pickle)
        unread += [asked.task] if score.deferred else []
    child.end()
    print(json.dumps([different, shared, sorted(set(untold)), unread]))  # noqa: T201 - the output is what the test reads


if __name__ == "__main__":
    main()
