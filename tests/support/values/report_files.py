"""Files for the tests of the report: groups of invented rollouts, written as dumps are."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from reasoning_gym_environment.scoring.extraction import extract_answer
from reasoning_gym_environment.storage.rows import StoredGroup

SYSTEM = "Think, then answer."


def attempt(
    text: str, score: float | None, *, tokens: int = 20, detail: str = ""
) -> Attempt:
    answer, failure, _ = extract_answer(text)
    known = Status.SOLVED if (score or 0) >= 0.5 else failure or Status.WRONG
    status = Status.UNSCORED if score is None else known
    return Attempt(
        completion=Completion(
            text=text,
            tokens=(1,) * (tokens + 5) if tokens else (),
            masks=(-100,) * 5 + (1,) * tokens if tokens else (),
            logprobs=None,
            finish_reason="stop",
        ),
        answer=answer,
        verdict=Verdict(score=score, status=status, detail=detail, raw_score=score),
        reward=Reward(value=score or 0.0),
    )


def row(
    scores: Sequence[float | None],
    *,
    task: str = "gcd",
    number: int = 0,
    level: float | None = None,
    evaluation: bool = False,
    texts: Sequence[str] = (),
    question: str = "What is it?",
    oracle: str | None = "42",
    detail: str = "",
    time: str | None = "",
    tokens: int = 20,
) -> dict[str, Any]:
    """A dumped group of one rollout for each score.

    Args:
        time: None leaves it out, as in dumps of old; "" is a minute for each number.
    """
    parameters = {} if level is None else {"max_value": 9}
    seed = 2 * number + evaluation
    recipe = Recipe(task=task, seed=seed, level=level, parameters=parameters)
    said = texts or [
        f"<think>thought {i}</think><answer>{i}</answer>" for i in range(len(scores))
    ]
    attempts = tuple(
        attempt(text, score, tokens=tokens, detail=detail)
        for text, score in zip(said, scores, strict=True)
    )
    problem = Problem(recipe=recipe, question=question, oracle=oracle, entry=b"")
    prompt = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": question},
    ]
    known = (
        {} if time is None else {"time": time or f"2026-01-01T00:{number:02}:00+00:00"}
    )
    scoring = {"solved_threshold": None}
    about = {
        "library_versions": {"reasoning-gym": "0.1.25"},
        "scoring": scoring,
        **known,
    }
    run = {"run": "r", "number": number + 1, **about}
    group = GroupResult(problem=problem, attempts=attempts)
    return StoredGroup.from_result(group, prompt, run).to_json()


def write(
    folder: Path, rows: Sequence[dict[str, Any]], name: str = "rollouts.jsonl"
) -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
