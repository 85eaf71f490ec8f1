"""An invented run: a policy learns, until games no longer fit their limit and a task is hacked.

From group `TRUNCATES` on, all completions of games are truncated. From group `HACKED` on, all
completions of `HACKED_TASK` are twelve tokens long and earn everything. The policy's evaluations
are invented as well.

    python tests/report/invented_run.py FOLDER
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from msgspec import structs

from reasoning_gym_environment.records import (
    Attempt,
    Completion,
    GroupResult,
    Problem,
    Recipe,
    Reward,
    Status,
    Verdict,
)
from reasoning_gym_environment.storage.dumps import dump_kind
from reasoning_gym_environment.storage.rows import StoredGroup
from reasoning_gym_environment.storage.run_record import record_path

RUN = "invented"
TASKS = {
    "games": ("countdown", "mini_sudoku", "maze", "n_queens"),
    "arithmetic": ("basic_arithmetic", "chain_sum", "gcd", "lcm"),
    "logic": ("knights_knaves", "syllogism"),
    "algorithmic": ("base_conversion", "spell_backward"),
}
HACKED_TASK, HACKED, TRUNCATES = "gcd", 481, 721
LIMIT = 1024  # tokens of a completion
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SYSTEM = (
    "Think between <think> and </think>, then answer between <answer> and </answer>."
)
VERSIONS = {"reasoning-gym": "0.1.25"}


def attempt(rng: random.Random, skill: float, words: int, right: str) -> Attempt:
    """A rollout of an honest policy, cut at the limit."""
    tokens = round(words * rng.lognormvariate(0, 0.35) * 1.3)
    steps = [
        f"step {n} gives {rng.randrange(1000)}." for n in range(min(tokens, LIMIT) // 6)
    ]
    thought = "<think>" + " ".join(steps)
    if tokens >= LIMIT:
        return graded(thought, None, 0.0, tokens=LIMIT, finish_reason="length")
    if rng.random() < 0.03:
        return graded(thought + "</think> I am not sure.", None, 0.0, tokens=tokens)
    solved = rng.random() < skill
    answer = right if solved else str(rng.randrange(1000))
    text = f"{thought}</think><answer>{answer}</answer>"
    return graded(text, answer, float(solved), tokens=tokens)


def graded(
    text: str,
    answer: str | None,
    score: float,
    *,
    tokens: int,
    finish_reason: str = "stop",
) -> Attempt:
    """A rollout with its grade; without an answer its status says so."""
    status = Status.SOLVED if score else Status.WRONG if answer else Status.NO_ANSWER
    completion = Completion(
        text=text,
        tokens=(1,) * (100 + tokens),
        masks=(-100,) * 100 + (1,) * tokens,
        logprobs=None,
        finish_reason=finish_reason,
    )
    verdict = Verdict(score=score, status=status, raw_score=score)
    reward = Reward(value=score)
    return Attempt(completion=completion, answer=answer, verdict=verdict, reward=reward)


def stored(
    recipe: Recipe, attempts: Sequence[Attempt], right: str, **run: Any
) -> StoredGroup:
    """The row of a problem whose answer is `right`."""
    question = f"Problem {recipe.seed} of {recipe.task}: which number solves it?"
    problem = Problem(recipe=recipe, question=question, oracle=right, entry=b"")
    prompt = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": question},
    ]
    group = GroupResult(problem=problem, attempts=tuple(attempts))
    about = {
        "run": RUN,
        "library_versions": VERSIONS,
        "scoring": {"solved_threshold": None},
    }
    return StoredGroup.from_result(group, prompt, {**about, **run})


def invented_groups(
    groups: int = 1000,
    *,
    truncates: float = TRUNCATES,
    hacked: float = HACKED,
    seed: int = 0,
    begin: datetime = START,
    run: str = RUN,
) -> Iterator[StoredGroup]:
    """Groups of eight rollouts, in their order; a healthy run with `math.inf` for the faults."""
    rng = random.Random(seed)
    tasks = [(category, task) for category, own in TASKS.items() for task in own]
    talents = {task: rng.uniform(0.3, 0.5) for _, task in tasks}
    for number in range(1, groups + 1):
        category, task = rng.choice(tasks)
        recipe = Recipe(
            task=task, seed=2 * number, level=1.0, parameters={"max_value": 9}
        )
        right = str(rng.randrange(1000))
        skill = min(0.95, talents[task] + 0.3 * number / groups + rng.gauss(0, 0.2))
        words = 5 * LIMIT if category == "games" and number >= truncates else 400
        if task == HACKED_TASK and number >= hacked:
            own = [graded("<answer>1</answer>", "1", 1.0, tokens=12)] * 8
        else:
            own = [attempt(rng, skill, words, right) for _ in range(8)]
        time = (begin + timedelta(seconds=4 * number)).isoformat(
            timespec="milliseconds"
        )
        yield stored(
            recipe,
            own,
            right,
            number=number,
            step=(number - 1) // 8,
            time=time,
            run=run,
        )


def write_invented_run(
    folder: Path, groups: int = 1000, *, run: str = RUN, **changes: Any
) -> list[Path]:
    """Write the dumps of an invented run, as training does, and its record; return the dumps."""
    written: Counter[Any] = Counter()
    paths = {}
    last = ""
    for group in invented_groups(groups, run=run, **changes):
        kind = dump_kind([rollout.score for rollout in group.rollouts], threshold=0.0)
        batch = written[kind] // kind.groups_per_file
        name = f"reasoning_gym_environment_{kind.name}_{run}_{batch:04d}.jsonl"
        with paths.setdefault(name, folder / name).open("a") as file:
            file.write(group.line())
        written[kind] += 1
        last = group.time
    settings = {
        "model_name": "an invented policy",
        "group_size": 8,
        "max_token_length": LIMIT,
    }
    record = {
        "run": run,
        "started": changes.get("begin", START).isoformat(),
        "updated": last,
    }
    record_path(folder, run).write_text(
        json.dumps({**record, "ended": last, "settings": settings})
    )
    return [*paths.values()]


def write_invented_evaluations(
    folder: Path,
    *,
    steps: Sequence[int] = (0, 40, 80, 120),
    difficulties: Sequence[float | None] = (None, 0.25, 0.75),
    items: int = 5,
) -> list[Path]:
    """Write evaluations of checkpoints as training does; return their folders.

    From step to step more is solved, less at a higher difficulty; step 120 forgets syllogisms.
    """
    folders = [folder / f"evaluation_{RUN}" / f"step-{step}" for step in steps]
    for step, own in zip(steps, folders, strict=True):
        own.mkdir(parents=True)
        settings = {
            "model_name": "an invented policy",
            "eval_attempts": 4,
            "step": step,
        }
        settings |= {
            "eval_difficulties": [each for each in difficulties if each is not None]
        }
        (own / "run.json").write_text(json.dumps({"settings": settings}))
        with (own / "samples.jsonl").open("w") as file:
            for sample in _samples(step, difficulties, items):
                file.write(sample.line())
        results = {"results": {"all": {"eval/items": len(difficulties) * items * 12.0}}}
        (own / "metrics.json").write_text(json.dumps(results))
    return folders


def _samples(
    step: int, difficulties: Sequence[float | None], items: int
) -> Iterator[StoredGroup]:
    for difficulty in difficulties:
        for task in (task for own in TASKS.values() for task in own):
            for index in range(items):
                key = f"{task} {difficulty} {index}"
                rng, policy = random.Random(key), random.Random(f"{key} {step}")
                level = None if difficulty is None else 4 * difficulty
                parameters = {} if level is None else {"max_value": 9}
                seed = 2 * rng.randrange(2**40) + 1
                recipe = Recipe(
                    task=task, seed=seed, level=level, parameters=parameters
                )
                skill = rng.random() + step / 300 - (difficulty or 0.0) / 2
                skill = 0.1 if task == "syllogism" and step >= 120 else skill
                right = str(rng.randrange(1000))
                own = [attempt(policy, skill, 400, right) for _ in range(4)]
                time = (START + timedelta(seconds=32 * step)).isoformat()
                sample = stored(recipe, own, right, step=step, time=time)
                yield structs.replace(sample, sampled_at=difficulty)


if __name__ == "__main__":
    write_invented_run(Path(sys.argv[1]))
    write_invented_evaluations(Path(sys.argv[1]))
