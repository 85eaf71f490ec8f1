"""Published answers against the labels, through the command, and files that are not valid."""

import asyncio
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.sandbox.pool import TaskPool
from research.labels.__main__ import main
from research.labels.answers import STRONG_MODELS, agreed_answer
from research.leaderboard.published import (
    PublishedAnswer,
    PublishedItem,
    read_published,
)

THREE, FOUR = sorted(STRONG_MODELS)[:3], sorted(STRONG_MODELS)[:4]


def published(
    recipe: Recipe, question: str, answers: dict[str, list[str]]
) -> dict[str, Any]:
    """Return a line of a file: each text and who gave it."""
    return {
        "set": "small",
        "task": recipe.task,
        "parameters": dict(recipe.parameters),
        "seed": recipe.seed,
        "question_sha256_16": hashlib.sha256(question.encode()).hexdigest()[:16],
        "answers": [
            {
                "text": f"<answer>{text}</answer>",
                "given_by": [[model, 0.0] for model in models],
            }
            for text, models in answers.items()
        ],
    }


async def lines_of(pool: TaskPool) -> list[dict[str, Any]]:
    """Return items: a false label, a right one, models wrong, made differently, disputed."""
    false_label = await pool.generate(Recipe(task="syllogism", seed=52))
    assert false_label.oracle == "Yes"
    right = await pool.generate(Recipe(task="syllogism", seed=48))
    other = "No" if right.oracle == "Yes" else "Yes"
    return [
        published(
            false_label.recipe, false_label.question, {"No": THREE, "Yes": FOUR[3:]}
        ),
        published(right.recipe, right.question, {str(right.oracle): FOUR}),
        published(right.recipe, right.question, {other: THREE}),
        published(right.recipe, "another question", {other: THREE}),
        published(
            right.recipe,
            right.question,
            {other: THREE[:2], str(right.oracle): THREE[2:]},
        ),
    ]


@pytest.mark.nightly
@pytest.mark.asyncio(loop_scope="session")
async def test_the_command_lists_items_on_which_models_and_label_differ(
    pool: TaskPool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("z3", reason="needs the extra `labels`")
    path = tmp_path / "answers.jsonl.gz"
    rows = await lines_of(pool)
    path.write_bytes(
        gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    )
    arguments = ["answers", str(path), "--tasks", "syllogism"]
    assert await asyncio.to_thread(main, arguments) == 0
    said = capsys.readouterr().out
    assert (
        "5 items, models agree on 4, 1 of these are made differently today, 2 disagree"
        in said
    )
    assert "syllogism: 2 items; 1 false label, 1 models wrong" in said
    assert "label 'Yes'\n  3 models 'No': score 0" in said


def item(answers: dict[str, list[str]]) -> PublishedItem:
    return PublishedItem(
        set="small",
        task="gcd",
        parameters={},
        seed=1,
        question_sha256_16="0" * 16,
        answers=[
            PublishedAnswer(text=text, given_by=[(model, 1.0) for model in models])
            for text, models in answers.items()
        ],
    )


def test_models_agree_on_what_each_of_them_gives_most_often() -> None:
    others = ["weak", "weaker", "weakest"]
    same = {"<answer>A  b</answer>": THREE[:2], "<answer>**a B**</answer>": THREE[2:]}
    assert agreed_answer(item(same)) == ("A  b", 3)
    assert agreed_answer(item({"<answer>5</answer>": [*THREE[:2], *others]})) is None
    assert agreed_answer(item({"": FOUR})) is None
    often = {"<answer>5</answer>": FOUR, "<answer>6</answer>": FOUR[:2] * 2}
    assert agreed_answer(item(often)) is None


VALID = published(Recipe(task="gcd", seed=1), "", {"5": THREE})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: "),
        ("[" * 100_000, "line 2: "),
        ("[]", "must be object"),
        (json.dumps({**VALID, "seed": -1}), "seed"),
        (json.dumps({**VALID, "seed": 2**60}), "seed"),
        (json.dumps({**VALID, "set": "../../etc"}), "set"),
        (
            json.dumps({**VALID, "answers": [{"text": "", "given_by": [["/x", 1]]}]}),
            "given_by",
        ),
        (
            json.dumps({**VALID, "question_sha256_16": "../../etc"}),
            "question_sha256_16",
        ),
        (
            json.dumps({**VALID, "answers": [{"text": 5, "given_by": []}]}),
            r"answers\[0\].text",
        ),
        (
            json.dumps({**VALID, "answers": [{"text": "", "given_by": [["x"]]}]}),
            "given_by",
        ),
        (
            json.dumps(
                {**VALID, "parameters": {"x": [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}}
            ),
            "x",
        ),
        (json.dumps({key: VALID[key] for key in VALID if key != "task"}), "task"),
    ],
)
def test_an_invalid_line_is_one_sentence(
    tmp_path: Path, line: str, message: str
) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(f"{json.dumps(VALID)}\n{line}\n")
    with pytest.raises(ConfigurationError, match=message) as error:
        list(read_published(path))
    assert "line 2" in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_files_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(VALID).encode() * 100)[:-20])  # torn
    for unreadable in (path, tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigurationError, match=unreadable.name):
            list(read_published(unreadable))
    packed = bytearray(gzip.compress(json.dumps(VALID).encode() * 50))
    packed[20:30] = b"\xff" * 10
    path.write_bytes(packed)
    with pytest.raises(ConfigurationError, match="cannot read"):
        list(read_published(path))
