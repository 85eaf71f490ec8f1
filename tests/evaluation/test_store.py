"""An evaluation resumes from disk, and only with the same settings."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from group_values import completion

from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.evaluation.store import (
    PARTIAL_ATTEMPTS,
    PARTIAL_SAMPLES,
    SAMPLES,
    EvaluationStore,
    locked,
    next_free_folder,
    read_results,
    samples_in,
)
from reasoning_gym_environment.storage.rows import StoredGroup

RESULTS = {"results": {"all": {"eval/items": 1.0}}}
SETTINGS = {"eval_seed": 1, "model_name": "a"}


def row(seed: int, score: float | None = 1.0) -> dict[str, Any]:
    rollout = {
        "conversation": [
            {"role": "user", "content": f"{seed}?"},
            {"role": "assistant", "content": "1"},
        ],
        "score": score or 0.0,
        "answer": None,
        "status": "unscored" if score is None else "solved",
        "detail": "",
        "raw_score": score,
        "raw_form_score": score,
        "tagged_form_score": None,
        "length_factor": 1.0,
        "verify_seconds": 0.25,
        "finish_reason": "stop",
        "tokens": 3,
        "completion_tokens": 2,
    }
    recipe = {"task": "gcd", "seed": seed, "level": None, "parameters": {}}
    known = {
        "item_id": "gcd",
        "rollouts": [rollout],
        "schema_version": 1,
        "recipe": recipe,
    }
    return {**known, "oracle": None, "difficulty": None}


def sample(seed: int, score: float | None = 1.0) -> StoredGroup:
    return StoredGroup.from_json(row(seed, score))


def seeds(store: EvaluationStore) -> list[int]:
    return [sample.recipe.seed for sample in store.samples.values()]


async def begun(folder: Path, *samples: StoredGroup) -> EvaluationStore:
    store = EvaluationStore(folder, SETTINGS)
    for each in samples:
        await store.add(each)
    return store


async def test_an_interrupted_evaluation_resumes_with_its_finished_samples(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "a" / "b"
    await begun(folder, sample(1), sample(2))
    lines = (folder / PARTIAL_SAMPLES).read_text().splitlines()
    assert [json.loads(line) for line in lines] == [row(1), row(2)]
    again = EvaluationStore(folder, SETTINGS)
    assert seeds(again) == [1, 2]
    await again.add(sample(3))
    assert seeds(EvaluationStore(folder, SETTINGS)) == [1, 2, 3]


async def test_samples_written_at_once_are_whole_lines(tmp_path: Path) -> None:
    store = EvaluationStore(tmp_path, SETTINGS)
    await asyncio.gather(*(store.add(sample(n)) for n in range(50)))
    assert [each.to_json() for each in samples_in(tmp_path)] == [
        row(n) for n in range(50)
    ]


async def test_a_torn_line_loses_only_its_own_sample(tmp_path: Path) -> None:
    await begun(tmp_path, sample(1))
    with (tmp_path / PARTIAL_SAMPLES).open("a") as partial:
        partial.write('{"recipe": {"task": "g')
    await begun(tmp_path, sample(2))
    assert seeds(EvaluationStore(tmp_path, SETTINGS)) == [1, 2]


async def test_samples_without_any_score_are_retried(tmp_path: Path) -> None:
    await begun(tmp_path, sample(1, score=None), sample(2))
    assert seeds(EvaluationStore(tmp_path, SETTINGS)) == [2]


async def test_attempts_are_kept_until_their_sample_is_finished(tmp_path: Path) -> None:
    store = EvaluationStore(tmp_path, SETTINGS)
    for question in ("1?", "2?"):
        await store.add_attempts(question, [completion("a"), completion("b")])
    await store.add_attempts("2?", [completion("c")])
    await store.add(sample(1))
    again = EvaluationStore(tmp_path, SETTINGS)
    assert {q: [c.text for c in made] for q, made in again.attempts.items()} == {
        "2?": ["a", "b", "c"]
    }
    before, after = completion("a"), again.attempts["2?"][0]
    for field in ("finish_reason", "length", "completion_tokens"):
        assert getattr(after, field) == getattr(before, field)
    again.complete([sample(1)], RESULTS)
    assert list(EvaluationStore(tmp_path, SETTINGS).attempts) == ["2?"]
    await again.add(sample(2))
    again = EvaluationStore(tmp_path, SETTINGS)
    assert not again.attempts
    assert not (tmp_path / PARTIAL_ATTEMPTS).exists()


async def test_attempts_of_other_settings_are_refused(tmp_path: Path) -> None:
    store = EvaluationStore(tmp_path, SETTINGS)
    await store.add_attempts("1?", [completion("a")])
    with pytest.raises(ConfigurationError, match="another model_name"):
        EvaluationStore(tmp_path, {**SETTINGS, "model_name": "b"})


async def test_an_attempt_that_is_torn_is_made_again(tmp_path: Path) -> None:
    store = EvaluationStore(tmp_path, SETTINGS)
    await store.add_attempts("1?", [completion("a")])
    await store.add_attempts("1?", [completion("b")])
    file = tmp_path / PARTIAL_ATTEMPTS
    file.write_bytes(file.read_bytes()[:-5])
    [kept] = EvaluationStore(tmp_path, SETTINGS).attempts["1?"]
    assert kept.text == "a"


async def test_attempts_that_cannot_be_read_are_refused_with_their_row(
    tmp_path: Path,
) -> None:
    store = EvaluationStore(tmp_path, SETTINGS)
    await store.add_attempts("1?", [completion("a")])
    file = tmp_path / PARTIAL_ATTEMPTS
    file.write_text(file.read_text().replace('"a"', "7"))
    with pytest.raises(
        FixableError, match=r"row 1 .*must be str, got 7.*delete the file"
    ):
        EvaluationStore(tmp_path, SETTINGS)


async def test_a_complete_evaluation_needs_no_other_file(tmp_path: Path) -> None:
    store = await begun(tmp_path, sample(1))
    store.complete([sample(1)], RESULTS)
    assert not (tmp_path / PARTIAL_SAMPLES).exists()
    assert seeds(EvaluationStore(tmp_path, SETTINGS)) == [1]


async def test_a_finished_evaluation_rerun_keeps_every_sample_twice(
    tmp_path: Path,
) -> None:
    """Whatever empties `samples.jsonl` then loses nothing."""
    store = await begun(tmp_path, sample(1), sample(2))
    store.complete([sample(1), sample(2)], RESULTS)
    await begun(tmp_path, sample(3))
    (tmp_path / SAMPLES).write_text("")
    assert seeds(EvaluationStore(tmp_path, SETTINGS)) == [1, 2, 3]


async def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    await begun(tmp_path, sample(1))
    other = {"eval_seed": 1, "model_name": "b", "eval_attempts": 4}
    with pytest.raises(
        ConfigurationError, match="another eval_attempts, model_name"
    ) as raised:
        EvaluationStore(tmp_path, other)
    assert "'model_name': 'a'" in str(raised.value)
    assert "data_dir_to_save_evals" in str(raised.value)
    assert seeds(EvaluationStore(tmp_path, SETTINGS)) == [1]


def test_samples_without_settings_are_not_continued(tmp_path: Path) -> None:
    (tmp_path / SAMPLES).write_text(json.dumps(row(1)) + "\n")
    with pytest.raises(ConfigurationError, match="another eval_seed, model_name"):
        EvaluationStore(tmp_path, SETTINGS)


def test_a_folder_without_samples_takes_any_settings(tmp_path: Path) -> None:
    EvaluationStore(tmp_path, SETTINGS)
    EvaluationStore(tmp_path, {"eval_seed": 2})


def test_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FixableError, match="data_dir_to_save_evals"):
        EvaluationStore(tmp_path / "file" / "below", SETTINGS)


async def test_a_sample_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    store = EvaluationStore(tmp_path, SETTINGS)
    (tmp_path / PARTIAL_SAMPLES).unlink()
    (tmp_path / PARTIAL_SAMPLES).mkdir()
    with pytest.raises(FixableError, match=f"can't be written to {tmp_path}"):
        await store.add(sample(1))


def test_a_folder_in_use_gets_a_number(tmp_path: Path) -> None:
    wanted = tmp_path / "step-5"
    assert next_free_folder(wanted) == wanted
    for name in ("step-5", "step-5-2"):
        (tmp_path / name).mkdir()
    assert next_free_folder(wanted) == tmp_path / "step-5-3"


async def test_results_are_read_from_any_folder_and_from_a_file(tmp_path: Path) -> None:
    await begun(tmp_path / "a", sample(1), sample(2))
    (tmp_path / "samples.jsonl").write_text(json.dumps(row(1)) + "\n")
    results = read_results(tmp_path / "a")
    assert len(results.samples) == 2
    assert results.settings == SETTINGS
    alone = read_results(tmp_path / "samples.jsonl")
    assert alone.settings == {}
    assert alone.samples[0].to_json() == results.samples[0].to_json()
    assert alone.differing(results) == {}


def test_scoring_settings_in_samples_override_those_of_their_folder(
    tmp_path: Path,
) -> None:
    EvaluationStore(tmp_path, {**SETTINGS, "score_mode": "partial"})
    again, other = tmp_path / "samples.rescored.jsonl", tmp_path / "other.jsonl"
    binary = {
        **row(1),
        "scoring": {"score_mode": "binary"},
        "library_versions": {"a": "2"},
    }
    again.write_text(json.dumps(binary) + "\n")
    expected = {**SETTINGS, "score_mode": "binary", "library_versions": {"a": "2"}}
    assert read_results(again).settings == expected
    mixed = {**binary, "scoring": {"score_mode": "partial"}}
    other.write_text("".join(json.dumps(each) + "\n" for each in (binary, mixed)))
    assert read_results(again).differing(read_results(other)) == {
        "score_mode": ("binary", ["binary", "partial"])
    }


@pytest.mark.parametrize("content", [None, "", '{"no": "sample"}\n', "torn"])
def test_the_error_for_another_file_names_it(
    content: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "samples.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(FixableError, match=str(path)):
        read_results(path)


@pytest.mark.parametrize(
    "changes",
    [{"rollouts": []}, {"rollouts": [{}]}, {"recipe": "gcd"}, {"rollouts": ["x"]}],
)
def test_a_row_of_another_shape_is_named(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / SAMPLES
    path.write_text(
        "".join(json.dumps(each) + "\n" for each in (row(1), row(2) | changes))
    )
    for opened in (path, tmp_path):
        with pytest.raises(
            FixableError, match=f"{path}: row 2 is not an evaluation sample"
        ):
            read_results(opened)


def test_a_row_of_another_kind_is_refused(tmp_path: Path) -> None:
    dumped = row(1)
    del dumped["difficulty"]
    (tmp_path / SAMPLES).write_text(json.dumps(dumped) + "\n")
    with pytest.raises(FixableError, match="difficulty"):
        read_results(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"settings": 3}', "\xff"])
def test_settings_that_cannot_be_read_are_named(content: str, tmp_path: Path) -> None:
    (tmp_path / SAMPLES).write_text(json.dumps(row(1)) + "\n")
    (tmp_path / "run.json").write_text(content, encoding="latin-1")
    with pytest.raises(
        FixableError, match=rf"{tmp_path}/run.json can't be read .*delete"
    ):
        read_results(tmp_path)


def test_samples_that_cannot_be_opened_are_named(tmp_path: Path) -> None:
    (tmp_path / SAMPLES).mkdir()
    with pytest.raises(
        FixableError, match=f"{tmp_path / SAMPLES} is not a regular file of its folder"
    ):
        read_results(tmp_path)


HOLDS = """
import sys, time
from pathlib import Path
from reasoning_gym_environment.evaluation.store import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.processes
def test_one_process_evaluates_into_a_folder_and_a_kill_releases_it(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "evals"
    command = [sys.executable, "-c", HOLDS, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(FixableError) as raised, locked(folder):
            pass
        other.kill()
    assert str(raised.value).startswith(f"{folder} is in use: process {other.pid} on ")
    assert str(raised.value).endswith(
        "evaluates into it; wait until it ends, or set another --env.data_dir_to_save_evals"
    )
    for _ in range(2):
        with locked(folder):
            pass


def test_a_folder_that_cannot_be_locked_is_used_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "evaluate.lock").mkdir()
    with locked(tmp_path):
        pass
    assert "can't be locked" in caplog.text
