"""`rescore` as it is called: settings as for `serve`, new files beside the old ones."""

import json
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from stored_values import as_stored, said, write_dump

from reasoning_gym_environment.commands.rescore import build_parser, main
from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.records import FaultKind, Recipe
from reasoning_gym_environment.report.data import read_metrics
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.scoring.grading import ScoringSettings, grade
from reasoning_gym_environment.settings import (
    default_settings,
    read_environment,
    scoring_settings,
)
from reasoning_gym_environment.storage.dumps import read_dump

SMALL = ["--env.task_processes", "1"]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def row(pool: TaskPool) -> dict[str, Any]:
    """A group with a right, a partly right and a wrong answer, under the default settings."""
    config = default_settings().env
    problem = await pool.generate(Recipe(task="gcd", seed=2))
    answers = [str(problem.oracle), f"{problem.oracle} or so", "nope"]
    completions = [said(f"<answer>{answer}</answer>") for answer in answers]
    group = await grade(problem, completions, pool, scoring_settings(config))
    return as_stored(group, scoring=scoring_settings(config).to_json())


def scores(path: Path) -> list[list[float]]:
    return [
        [rollout["score"] for rollout in row["rollouts"]]
        for row in read_dump(path).rows
    ]


def test_another_answer_format_reads_the_same_texts(
    row: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = {**row, "scoring": {}}
    dump = write_dump(tmp_path / "dump.jsonl", [boxed(older)])
    new = tmp_path / "dump.rescored.jsonl"
    assert main([str(dump), *SMALL]) == 0
    assert scores(new) == [[0.0, 0.0, 0.0]]
    options = ["--env.answer_format", "boxed", "--force"]
    assert main([str(dump), *SMALL, *options]) == 0
    assert scores(new)[0][0] == 1.0
    assert read_dump(new).rows[0]["scoring"]["answer_format"] == "boxed"
    printed = capsys.readouterr().out
    assert "1  were scored with answer_format tags, now boxed" in printed


def boxed(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose replies have boxes in place of tags."""
    text = json.dumps(row)
    text = text.replace("<answer>", r"\\boxed{").replace("</answer>", "}")
    changed: dict[str, Any] = json.loads(text)
    return changed


def test_files_are_scored_again_beside_the_old_ones(
    row: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = {**row, "recipe": {**row["recipe"], "seed": 4}}
    tampered = {**row, "rollouts": [{**r, "score": 0.5} for r in row["rollouts"]]}
    made = row["recipe"].items()
    tampered["recipe"] = {key: value for key, value in made if key != "library_version"}
    tampered["library_versions"] = {"reasoning-gym": "0.0.7\x1b"}
    dump = write_dump(tmp_path / "dump.jsonl", [tampered, moved], torn=True)
    before, new = dump.read_bytes(), tmp_path / "dump.rescored.jsonl"

    assert main([str(dump), *SMALL]) == 1  # one row could not be rescored
    printed = capsys.readouterr().out.splitlines()
    assert dump.read_bytes() == before
    right, partly, wrong = scores(new)[0]
    assert (right, wrong) == (1.0, 0.0)
    assert 0.0 < partly < 0.5
    assert scores(new)[1] == [right, partly, wrong]
    assert printed[:3] == [
        f"{dump} -> dump.rescored.jsonl",
        "1 of 2 groups rescored",
        "  1  torn lines skipped",
    ]
    assert printed[3].startswith("  1  unchanged: the recipe gives another question")
    assert printed[4].startswith(
        r"  1  were generated with reasoning-gym 0.0.7\x1b, scored with "
    )
    assert printed[5].startswith("3 of 3 scores changed, 1 up, 2 down; mean 0.500 -> ")

    with pytest.raises(
        FixableError, match=r"rescored\.jsonl exists; --force replaces it"
    ):
        main([str(dump), *SMALL])
    evaluation = tmp_path / "evaluation"
    evaluation.mkdir()
    write_dump(evaluation / "samples.jsonl", [{**row, "difficulty": None}])
    binary = ["--env.score_mode", "binary", "--force"]
    # The rescored file is left out; a folder stands for what is in it.
    assert main([str(dump), str(new), str(evaluation), *SMALL, *binary]) == 1
    assert scores(new)[0] == [1.0, 0.0, 0.0]
    shown = capsys.readouterr().out
    assert "  2  were scored with score_mode partial, now binary" in shown
    assert "mean over items" in shown
    metrics = read_metrics(evaluation / "samples.rescored.metrics.json")
    assert (metrics["eval/items"], metrics["eval/solved"]) == (
        1.0,
        pytest.approx(1 / 3),
    )
    assert metrics["eval/reward"] == pytest.approx(1 / 3)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def faulty_row(pool: TaskPool) -> dict[str, Any]:
    """A group on a syllogism with a false label, as version 0.2.0 stored it."""
    for seed in range(0, 200, 2):
        problem = await pool.generate(Recipe(task="syllogism", seed=seed))
        if problem.fault is not None and problem.fault.kind is FaultKind.FALSE_LABEL:
            break
    group = await grade(
        problem,
        [said("<answer>Yes</answer>")],
        pool,
        ScoringSettings(max_token_length=100),
    )
    stored = as_stored(group, scoring={"solved_threshold": 0.5})
    return {key: value for key, value in stored.items() if key != "fault"}


def test_rows_of_earlier_versions_get_their_fault_and_their_status(
    row: dict[str, Any],
    faulty_row: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dump = write_dump(tmp_path / "dump.jsonl", [row, faulty_row])
    partly = row["rollouts"][1]
    older = {**row, "rollouts": [{**partly, "status": "solved"}], "scoring": {}}
    new, of_older = tmp_path / "dump.rescored.jsonl", tmp_path / "older.rescored.jsonl"
    assert (
        main([str(dump), str(write_dump(tmp_path / "older.jsonl", [older])), *SMALL])
        == 0
    )
    sound, faulty = read_dump(new).rows
    assert "fault" not in sound
    assert faulty["fault"]["kind"] == "false_label"
    [[rollout]] = [again["rollouts"] for again in read_dump(of_older).rows]
    assert (rollout["status"], rollout["raw_score"]) == ("wrong", partly["raw_score"])
    printed = capsys.readouterr().out
    assert "  1  have faulty items; --without-faulty-items leaves them out" in printed
    assert "  1  were scored with solved_threshold 0.5, now None" in printed
    assert "  1  the same verifier score has another status" in printed
    assert main([str(dump), *SMALL, "--without-faulty-items", "--force"]) == 0
    assert [kept["item_id"] for kept in read_dump(new).rows] == ["gcd"]


def test_rescored_files_alone_are_refused() -> None:
    with pytest.raises(FixableError, match="all files are rescored already"):
        main(["dump.rescored.jsonl"])


def config_of(*options: str) -> Any:
    return read_environment(build_parser().parse(["dump.jsonl", *options]))


def test_settings_are_those_of_serve(tmp_path: Path) -> None:
    assert config_of() == default_settings().env
    file = tmp_path / "run.yaml"
    file.write_text(
        "env:\n  score_mode: binary\n  solved_threshold: 0.9\n  group_size: 16\n"
    )
    config = config_of("--config", str(file), "--env.solved_threshold", "0.7")
    assert config.score_mode == "binary"
    assert (config.solved_threshold, config.group_size) == (0.7, 16)
    retired = config_of("--env.answer_tolerance", "true", "--env.max_token_length=100")
    assert retired.max_token_length == 100


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--env.score_mode", "both"], "score_mode must be one of partial, .*'both'"),
        (
            ["--env.solved_threshold", "2"],
            "solved_threshold must be a number > 0 and ≤ 1, got '2'",
        ),
        (["--config", "none.yaml"], r"none\.yaml can't be read"),
    ],
)
def test_an_invalid_setting_is_named(options: list[str], named: str) -> None:
    with pytest.raises(FixableError, match=named):
        config_of(*options)


@pytest.mark.parametrize(
    "text",
    [
        "openai: []",
        "[1, 2]",
        "env: {score_mod: binary}",
        "env: 3",
        "env: abc",
        "{",
        "\udcff",
    ],
)
def test_a_file_that_holds_no_settings_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(FixableError):
        config_of("--config", str(file))


def test_own_tasks_have_the_category_and_the_version_of_their_module(
    row: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = {"task": "own_sums", "seed": 2}
    own = {**row, "item_id": "own_sums", "recipe": recipe, "difficulty": None}
    write_dump(tmp_path / "samples.jsonl", [own])
    module = Path(__file__).parents[1] / "support" / "programs" / "own_tasks.py"
    assert main([str(tmp_path), *SMALL, "--env.task_modules", str(module)]) == 1
    kept = "another question: generated with own_tasks an unknown version, installed is sha256:"
    assert kept in capsys.readouterr().out
    metrics = read_metrics(tmp_path / "samples.rescored.metrics.json")
    assert metrics["eval/category/own_tasks/items"] == 1.0
