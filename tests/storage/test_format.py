"""Rows of earlier versions are read, and rows are written as before, byte for byte.

`tests/stored` holds a dump and an evaluation that version 0.1.0 wrote.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from reasoning_gym_environment.evaluation.metrics import Baselines, evaluation_report
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
from reasoning_gym_environment.storage.dumps import read_groups
from reasoning_gym_environment.storage.rows import StoredGroup
from reasoning_gym_environment.tasks.facts import Floor, known_categories

STORED = Path(__file__).parents[1] / "stored"
FILES = [STORED / "dump.jsonl", STORED / "evaluation" / "samples.jsonl"]
OF_THE_GROUP = {
    "item_id",
    "rollouts",
    "schema_version",
    "recipe",
    "oracle",
    "difficulty",
}


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def attempt(rollout: dict[str, Any]) -> Attempt:
    """The attempt that was stored so; of its tokens only their number is."""
    own = (1,) * rollout["completion_tokens"]
    prompt = (-100,) * (rollout["tokens"] - len(own))
    return Attempt(
        completion=Completion(
            text=rollout["conversation"][-1]["content"],
            tokens=prompt + own,
            masks=prompt + own,
            logprobs=None,
            finish_reason=rollout["finish_reason"],
        ),
        answer=rollout["answer"],
        verdict=Verdict(
            score=rollout["raw_score"],
            status=Status(rollout["status"]),
            detail=rollout["detail"],
            seconds=rollout["verify_seconds"],
            raw_score=rollout["raw_form_score"],
            tagged_score=rollout["tagged_form_score"],
        ),
        reward=Reward(value=rollout["score"], length_factor=rollout["length_factor"]),
    )


def group(row: dict[str, Any]) -> GroupResult:
    question = row["rollouts"][0]["conversation"][-2]["content"]
    recipe = Recipe.from_json(row["recipe"])
    problem = Problem(recipe=recipe, question=question, oracle=row["oracle"], entry=b"")
    return GroupResult(problem=problem, attempts=tuple(map(attempt, row["rollouts"])))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_groups_are_written_as_before(path: Path) -> None:
    for line in lines(path):
        row = json.loads(line)
        prompt = row["rollouts"][0]["conversation"][:-1]
        run = {key: value for key, value in row.items() if key not in OF_THE_GROUP}
        stored = StoredGroup.from_result(group(row), prompt, run)
        if "difficulty" in row:
            stored = structs.replace(stored, sampled_at=row["difficulty"])
        assert json.dumps(stored.to_json()) == line


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_groups_are_read_whole(path: Path) -> None:
    groups, torn = read_groups(path)
    assert [json.dumps(group.to_json()) for group in groups] == lines(path)
    assert torn == 0


def test_an_evaluation_measures_as_before() -> None:
    samples, _ = read_groups(FILES[1])
    shares = {
        "caesar_cipher": 0.0,
        "countdown": 0.0,
        "gcd": 0.233,
        "spell_backward": 0.0,
    }
    floors = {
        task: Floor(label="", items=150, solved=solved, low=0.0, high=1.0)
        for task, solved in shares.items()
    }
    baselines = Baselines(
        categories=known_categories(),
        chance_floors=floors,
        attempts=len(samples[0].rollouts),
    )
    stored = json.loads((STORED / "evaluation" / "metrics.json").read_text())[
        "results"
    ]["all"]
    measured = evaluation_report(samples, baselines).numbers()
    new = r".*/scored_(items|tasks)|eval/difficulty/.*chance|.*/chance_(low|high)"
    since = {name for name in measured if re.fullmatch(new, name)}
    known = {name: n for name, n in measured.items() if name not in since}
    assert list(known) == list(stored)
    # Student's quantiles are bisected to nine digits.
    assert known == pytest.approx(stored, abs=1e-9)
