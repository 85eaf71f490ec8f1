"""A small suite for tests, and published answers to it."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reasoning_gym_environment.problems.suites import question_sha256
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import TaskPool
from research.leaderboard.__main__ import main as leaderboard
from research.make_suites import encode_suite

GOOD, BAD = "good-model", "bad-model"

RECIPES = [
    *(Recipe(task="gcd", seed=seed) for seed in (1, 3, 5)),
    *(Recipe(task="chain_sum", seed=seed) for seed in (1, 3)),
]


def manifest(problems: list[Problem], **changes: Any) -> dict[str, Any]:
    """Return a suite of these problems but for its hashes."""
    return {
        "name": "tiny",
        "version": 1,
        "about": "for tests",
        "made_with": {"reasoning-gym": "0.1.25"},
        "settings": {
            "system_prompt": "Answer.",
            "eval_attempts": 1,
            "eval_temperature": 0.6,
            "max_token_length": 512,
        },
        "sets": [
            {
                "task": problem.recipe.task,
                "level": None,
                "difficulty": None,
                "parameters": {},
                "items": [[problem.recipe.seed, question_sha256(problem.question)]],
            }
            for problem in problems
        ],
        "left_out": [],
        **changes,
    }


async def problems_of(pool: TaskPool) -> list[Problem]:
    return [await pool.generate(recipe) for recipe in RECIPES]


def write_suite(path: Path, suite: Mapping[str, Any]) -> str:
    """Write a suite with its hashes; return the file's name."""
    path.write_text(encode_suite(suite), encoding="utf-8")
    return str(path)


def lines(problems: Any, **changes: Any) -> str:
    """Return a file in which one model is right and the other wrong, but for partial credit."""
    rows = [
        {
            "set": "tiny",
            "task": p.recipe.task,
            "parameters": {},
            "seed": p.recipe.seed,
            "question_sha256_16": question_sha256(p.question)[:16],
            "answers": [
                {
                    "text": f"<answer>{p.oracle}</answer>",
                    "given_by": [[GOOD, 1.0], [GOOD, 0.5]],
                },
                {"text": "<answer>no number</answer>", "given_by": [[BAD, 0.25]]},
            ],
            **changes,
        }
        for p in problems
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


async def imported(pool: TaskPool, folder: Path) -> tuple[str, list[str]]:
    """Return the suite's file and the folders of both models, with the suite's hash."""
    problems = await problems_of(pool)
    name = write_suite(folder / "tiny.json", manifest(problems))
    (folder / "answers.jsonl").write_text(lines(problems))
    arguments = ["import", str(folder / "answers.jsonl"), "-o", str(folder / "out")]
    assert await asyncio.to_thread(leaderboard, [*arguments, "--suites", name]) == 0
    return name, [str(folder / "out" / "tiny" / model) for model in (GOOD, BAD)]
