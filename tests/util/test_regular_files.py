"""Files of strangers: links out of a folder are not followed, pipes not waited for."""

import json
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from reasoning_gym_environment.errors import ConfigurationError, FixableError
from reasoning_gym_environment.evaluation.store import locked, read_results
from reasoning_gym_environment.problems.suites import load_suite
from reasoning_gym_environment.report.live import LiveIndex
from reasoning_gym_environment.settings import sections
from reasoning_gym_environment.storage.dumps import stored_files
from reasoning_gym_environment.storage.run_record import read_record
from reasoning_gym_environment.tasks.modules import Proof, read_proof
from reasoning_gym_environment.util.files import (
    LockFile,
    files_below,
    read_regular,
    stays_below,
)
from reasoning_gym_environment.util.modules import ModuleSource
from reasoning_gym_environment.util.settings_file import read_file

DUMP = "reasoning_gym_environment_rollouts_r_0000.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a link to a file beside it, a pipe, and links that lead nowhere."""
    folder = tmp_path / "runs"
    folder.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("the secret of another file\n")
    (folder / DUMP).symlink_to(secret)
    (folder / "samples.jsonl").symlink_to(secret)
    (folder / "run.json").symlink_to(secret)
    os.mkfifo(folder / DUMP.replace("0000", "0001"))
    (folder / DUMP.replace("0000", "0002")).symlink_to(folder / "nothing")
    (folder / DUMP.replace("0000", "0003")).symlink_to(
        folder / DUMP.replace("0000", "0003")
    )
    return folder


def test_only_regular_files_of_a_folder_are_found(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    real = folder / "deep" / DUMP
    real.parent.mkdir()
    real.write_text("{}\n")
    inside = folder / DUMP.replace("0000", "0004")
    inside.symlink_to(real)
    assert files_below(folder, lambda name: name.endswith(".jsonl")) == [real, inside]
    assert "skipped 5 files that are no regular files of this folder" in caplog.text
    assert not stays_below(folder / "missing", folder)


def test_readers_of_a_folder_do_not_follow_links_out_of_it(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(FixableError, match="holds no dumps"):
        stored_files([folder])
    with pytest.raises(FixableError, match="not a regular file of its folder"):
        read_results(folder)
    live = LiveIndex([folder])
    live.update()
    assert len(live) == 0
    assert "secret" not in json.dumps(live.batch())
    assert "the secret" not in caplog.text


def test_a_pipe_or_a_huge_file_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        read_regular(pipe)
    with pytest.raises(OSError, match="has more than 3 bytes"):
        read_regular(Path(__file__), max_bytes=3)
    assert read_record(pipe) is None
    with pytest.raises(ConfigurationError, match="can't be read: not a regular file"):
        read_file(pipe, sections())


@pytest.mark.parametrize("content", ["[" * 200_000, "1" * 5001, "{", "\0"])
def test_hostile_json_is_refused_in_a_sentence(content: str, tmp_path: Path) -> None:
    suite = tmp_path / "mine.json"
    suite.write_text(content)
    with pytest.raises(ConfigurationError, match="is not a suite"):
        load_suite(str(suite))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("env: " + "[" * 20_000, "is nested too deeply"),
        (f"env: {{seed: {'1' * 5001}}}", "has a value that can't be read"),
        ("env: {seed: \t1", "is not valid YAML"),
        ("#" * (2**20 + 1), "more than 1,048,576 bytes"),
    ],
)
def test_hostile_yaml_is_refused_in_a_sentence(
    text: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        read_file(file, sections())


@pytest.mark.parametrize("chance", ["NaN", "1e999", "-5", "1.5", '"x"'])
def test_a_proof_with_an_impossible_share_proves_nothing(
    chance: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine.py").write_text("")
    module = ModuleSource(
        name="mine",
        folder=str(tmp_path),
        shown=str(tmp_path / "mine.py"),
        search_path=(),
    )
    result = (
        f'{{"verdict": "proved", "stateless": true, "chance": {{"solved": {chance}}}}}'
    )
    versions = json.dumps({"mine": "d", "reasoning-gym": version("reasoning-gym")})
    (tmp_path / "mine.proof.json").write_text(
        f'{{"versions": {versions}, "tasks": {{"mine": {result}}}}}'
    )
    assert read_proof(module, "d") == Proof()
    assert "is not a proof" in caplog.text


def test_a_pipe_beside_a_module_holds_up_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = ModuleSource(
        name="mine",
        folder=str(tmp_path),
        shown=str(tmp_path / "mine.py"),
        search_path=(),
    )
    os.mkfifo(tmp_path / "mine.proof.json")
    assert read_proof(module, "d") == Proof()
    assert "not a regular file" in caplog.text


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_lock_writes_to_no_file_of_another_name(
    link: Callable[[Path, Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dump = tmp_path / "dump.jsonl"
    dump.write_text("a row\n")
    folder = tmp_path / "results"
    folder.mkdir()
    link(folder / "evaluate.lock", dump)
    with pytest.raises(OSError, match=r"symbolic links|one name"):
        LockFile(folder / "evaluate.lock").acquire()
    with locked(folder):
        assert "evaluate.lock can't be locked" in caplog.text
    assert dump.read_text() == "a row\n"
