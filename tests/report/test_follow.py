"""Files that are followed: what a running, a killed, a resumed or a hostile writer leaves."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from report_files import row, write

from reasoning_gym_environment.errors import FixableError
from reasoning_gym_environment.report import files
from reasoning_gym_environment.report import live as live_module
from reasoning_gym_environment.report.index import GroupIndex
from reasoning_gym_environment.report.live import GoneError, LiveIndex
from reasoning_gym_environment.storage.rows import StoredGroup
from reasoning_gym_environment.storage.run_record import record_path
from reasoning_gym_environment.util.files import MOST_DEPTH

DUMP = "reasoning_gym_environment_rollouts_r_0000.jsonl"
SECOND = "reasoning_gym_environment_rollouts_r_0001.jsonl"


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveIndex, "look_seconds", 0.0)


def line(seed: int, **fields: Any) -> str:
    return json.dumps(row([1.0, 0.0], number=seed) | fields) + "\n"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def read(live: LiveIndex) -> LiveIndex:
    while live.update(60.0):
        pass
    return live


def following(*paths: Path) -> LiveIndex:
    return read(LiveIndex(paths))


def seeds(live: LiveIndex) -> list[int]:
    """The groups that can be read from their files, by their seeds."""
    read(live)
    return [live.group(each).recipe.seed for each in live.batch()["groups"]["id"]]


def sample(number: int, **fields: Any) -> str:
    known = row([1.0], number=number, evaluation=True) | {"difficulty": None}
    return json.dumps(known | fields) + "\n"


def test_a_batch_has_what_came_since_the_one_before(tmp_path: Path) -> None:
    live = following(tmp_path)
    first = live.batch()
    assert (first["restart"], first["groups"]["id"], first["reading"]) == (
        True,
        [],
        1.0,
    )
    append(tmp_path / DUMP, line(0) + line(1))
    second = read(live).batch(first["cursor"])
    assert (second["restart"], len(second["groups"]["id"])) == (False, 2)
    assert "at" not in second["groups"]
    append(tmp_path / DUMP, line(2))
    third = read(live).batch(second["cursor"])
    assert (len(third["groups"]["id"]), len(third["rollouts"]["status"])) == (1, 2)
    assert live.batch(third["cursor"])["groups"]["id"] == []
    assert seeds(live) == [0, 2, 4]


@pytest.mark.parametrize(
    "cursor",
    [
        *("x", "-", "0-1-0", "{}-1", "{}-99-0", "{}-1-9", "{}--1-0", "{}-1-0-0"),
        *("{}-1-²", "{}-1-" + "9" * 5000),
    ],
)
def test_a_cursor_of_another_index_gets_everything(cursor: str, tmp_path: Path) -> None:
    append(tmp_path / DUMP, line(0))
    live = following(tmp_path)
    generation = live.batch()["cursor"].partition("-")[0]
    batch = live.batch(cursor.format(generation))
    assert (batch["restart"], len(batch["groups"]["id"])) == (True, 1)


def test_a_torn_last_line_waits_for_its_end(tmp_path: Path) -> None:
    whole = line(1)
    append(tmp_path / DUMP, line(0) + whole[:50])
    live = following(tmp_path)
    assert seeds(live) == [0]
    append(tmp_path / DUMP, whole[50:])
    assert seeds(live) == [0, 2]
    assert not live.batch()["notes"]


WRITER = """
import json, os, sys
path, text = sys.argv[1:]
file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for number in range(20):
    os.write(file, text.encode())
os.write(file, text[:100].encode())
print("in the middle of a line", flush=True)
sys.stdin.read()
"""


@pytest.mark.processes
def test_a_writer_killed_in_the_middle_of_a_line_loses_that_line_alone(
    tmp_path: Path,
) -> None:
    live = LiveIndex([tmp_path])
    path = tmp_path / DUMP
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), line(0)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        assert len(seeds(live)) == 20
        writer.send_signal(signal.SIGKILL)
    append(path, "\n" + line(21))
    append(tmp_path / SECOND, line(22))
    assert sorted(seeds(live))[-2:] == [42, 44]
    (run,) = live.batch()["runs"]
    assert {"level": "warning", "text": "Skipped 1 torn or unreadable lines"} in run[
        "health"
    ]


def test_files_that_are_renamed_replaced_or_cut_keep_their_groups(
    tmp_path: Path,
) -> None:
    path, moved = tmp_path / DUMP, tmp_path / SECOND
    append(path, line(0) + line(1))
    live = following(tmp_path)
    path.rename(moved)
    append(path, line(2))
    assert seeds(live) == [0, 2, 4], "renamed, and begun anew"
    path.write_text(line(3) + line(4))
    read(live)
    assert len(live) == 5
    gone = live.batch()["groups"]["id"][2]
    with pytest.raises(GoneError, match="replaced"):
        live.group(gone)
    moved.unlink()
    with pytest.raises(GoneError, match="deleted"):
        live.group(live.batch()["groups"]["id"][0])
    read(live)
    assert len(live.batch()["rollouts"]["status"]) == 10, "figures stay"
    with pytest.raises(GoneError, match="no such group"):
        live.group("0123456789")


def test_the_same_row_twice_is_two_groups_and_a_copied_file_none(
    tmp_path: Path,
) -> None:
    append(tmp_path / DUMP, line(0) * 2)
    live = following(tmp_path)
    assert seeds(live) == [0, 0]
    (tmp_path / "copy").mkdir()
    append(tmp_path / "copy" / DUMP, line(0))
    assert len(seeds(live)) == 2


def test_a_finished_evaluation_keeps_its_groups_and_ends(tmp_path: Path) -> None:
    folder = tmp_path / "evaluation"
    folder.mkdir()
    (folder / "run.json").write_text(
        json.dumps({"settings": {"model_name": "a model"}})
    )
    append(folder / "samples.partial.jsonl", sample(1) + sample(0))
    live = following(tmp_path)
    first = live.batch()
    (folder / "samples.jsonl").write_text(sample(0) + sample(1))
    (folder / "metrics.json").write_text("{}")
    (folder / "samples.partial.jsonl").unlink()
    second = read(live).batch(first["cursor"])
    assert (second["restart"], second["groups"]["id"]) == (False, [])
    assert seeds(live) == [3, 1]
    (before,), (after,) = first["runs"], second["runs"]
    assert ["model", "a model"] in after["header"]
    assert (before["ended"], after["health"][0]["text"][:8]) == ("", "Ended 20")


def test_a_resumed_evaluation_asks_its_unscored_items_again(tmp_path: Path) -> None:
    partial = tmp_path / "samples.partial.jsonl"
    unscored = (
        json.dumps(row([None], number=1, evaluation=True) | {"difficulty": None}) + "\n"
    )
    append(partial, sample(0) + unscored)
    live = following(tmp_path)
    cursor = live.batch()["cursor"]
    resumed = tmp_path / "resumed"
    resumed.write_text(sample(0))
    resumed.replace(partial)
    append(partial, sample(1, time="2026-01-02T00:00:00+00:00"))
    batch = read(live).batch(cursor)
    assert (batch["restart"], len(batch["groups"]["id"])) == (True, 2)
    assert batch["rollouts"]["solved"] == [1, 1]


def record(run: str, *, ago: float = 1.0, **fields: Any) -> str:
    at = datetime.fromtimestamp(time.time() - ago, timezone.utc).isoformat()
    return json.dumps({"run": run, "started": at, "updated": at, **fields})


def test_a_run_that_begins_is_shown_before_its_first_group(tmp_path: Path) -> None:
    record_path(tmp_path, "old").write_text(record("old", ago=3600))
    record_path(tmp_path, "new").write_text(
        record("new", settings={"model_name": "a model"})
    )
    live = following(tmp_path)
    (run,) = live.batch()["runs"]
    assert (run["id"], run["kind"]) == ("new", "training")
    assert ["model", "a model"] in run["header"]
    append(tmp_path / DUMP, line(0, run="new"))
    batch = read(live).batch()
    assert (batch["groups"]["run"], len(batch["runs"])) == ([0], 1)
    record_path(tmp_path, "new").write_text(record("new", failures=3))
    (run,) = read(live).batch()["runs"]
    assert run["health"][1]["text"] == "Inference fails: lost 3 groups in a row"
    record_path(tmp_path, "new").write_text(record("new", ended=run["updated"]))
    record_path(tmp_path, "next").write_text(record("next"))
    ended, begun = read(live).batch()["runs"]
    assert (ended["health"][0]["text"][:8], begun["id"]) == ("Ended 20", "next")


def test_only_what_is_written_from_now_on_is_shown_where_that_is_asked(
    tmp_path: Path,
) -> None:
    append(tmp_path / DUMP, line(0))
    live = read(LiveIndex([tmp_path], only_new=True))
    assert len(live) == 0
    append(tmp_path / SECOND, line(1))
    os.utime(tmp_path / SECOND, (1, 1))  # the clock was set back, or is a file server's
    assert seeds(live) == [2]


HOSTILE = [
    "",
    "not json",
    "\x00" * 100,
    "[" * 100_000,
    "1" * 10_000,
    "[]",
    "{}",
    json.dumps({"schema_version": 2}),
    json.dumps({"schema_version": ["x" * 1000]}),
    line(0, item_id="lcm").strip(),
    line(0, rollouts=[]).strip(),
    line(0, number="one").strip(),
    '{"schema_version": 1, "item_id": "\\ud800"}',
]


def test_hostile_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / DUMP
    path.write_bytes(b"\xff\xfe\xfa\n")
    append(path, "".join(f"{each}\n" for each in HOSTILE))
    live = following(tmp_path)
    assert len(live) == 0
    (note,) = live.batch()["notes"]
    assert note.startswith(
        f"{path}: no groups; a line was skipped: it is torn, or not JSON"
    )
    append(path, line(1))
    assert seeds(live) == [2]
    (run,) = live.batch()["runs"]
    assert (
        run["health"][-1]["text"] == f"Skipped {len(HOSTILE)} torn or unreadable lines"
    )
    json.dumps(live.batch(), allow_nan=False)


class IndexWithBug(GroupIndex):
    """Fails on the rows of one question."""

    def add(self, group: StoredGroup, at: Any = None, *, identifier: str = "") -> str:
        if group.question == "What breaks it?":
            raise ZeroDivisionError("the bug")
        return super().add(group, at, identifier=identifier)


def test_a_row_on_which_the_index_fails_is_skipped_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "GroupIndex", IndexWithBug)
    append(tmp_path / DUMP, texts("a", number=0, question="What breaks it?"))
    live = following(tmp_path)
    (note,) = live.batch()["notes"]
    assert "ZeroDivisionError: the bug" in note
    append(tmp_path / DUMP, line(1))
    assert seeds(live) == [2]
    (run,) = live.batch()["runs"]
    assert run["health"][-1]["text"] == "Skipped 1 torn or unreadable lines"


def test_folders_in_folders_without_end_hold_up_nothing(tmp_path: Path) -> None:
    deepest_read = tmp_path.joinpath(*["a"] * MOST_DEPTH)
    beyond = deepest_read / "a"
    beyond.mkdir(parents=True)
    append(deepest_read / DUMP, line(0))
    append(beyond / DUMP, line(1))
    assert seeds(following(tmp_path)) == [0]


def test_a_line_of_any_length_is_skipped_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 2**14)
    monkeypatch.setattr(files, "READ_SIZE", 2**10)
    path = tmp_path / DUMP
    # Valid but for that.
    too_long = json.dumps(row([1.0], number=3, texts=["x" * 2**16])) + "\n"
    append(path, line(0) + too_long[: 2**16])
    live = following(tmp_path)
    append(path, too_long[2**16 :] + line(1))
    append(path, json.dumps(row([1.0], number=2, texts=["y" * 2**13])) + "\n")
    assert seeds(live) == [0, 2, 4]
    (run,) = live.batch()["runs"]
    assert run["health"][-1]["text"] == "Skipped 1 torn or unreadable lines"


def test_what_is_no_regular_file_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / DUMP)
    os.mkfifo(record_path(tmp_path, "r"))
    (tmp_path / SECOND).mkdir()
    live = following(tmp_path, tmp_path / DUMP)
    assert live.batch()["runs"] == []
    append(tmp_path / "reasoning_gym_environment_rollouts_r_0002.jsonl", line(0))
    assert seeds(live) == [0]


def test_groups_beyond_the_limits_are_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_module, "MAX_ROLLOUTS", 5)
    monkeypatch.setattr(live_module, "MAX_RUNS", 1)
    append(tmp_path / DUMP, line(0) + line(1) + line(2) + line(3, run="another"))
    live = following(tmp_path)
    assert seeds(live) == [0, 2]
    assert live.batch()["notes"] == [
        "2 groups beyond 5 rollouts or 1 runs are left out"
    ]


def test_paths_that_do_not_exist_or_hold_the_same_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FixableError, match="does not exist"):
        LiveIndex([tmp_path / "nowhere"])
    own = write(tmp_path, [row([1.0])])
    rescored = write(tmp_path, [row([0.0])], "rollouts.rescored.jsonl")
    with pytest.raises(FixableError, match="the same rollouts"):
        LiveIndex([own, rescored])


def texts(*said: str, number: int = 0, question: str = "What is it?") -> str:
    scores = [0.0] * len(said)
    return json.dumps(row(scores, texts=said, number=number, question=question)) + "\n"


def test_a_search_finds_texts_in_upper_and_lower_case_and_questions(
    tmp_path: Path,
) -> None:
    path = tmp_path / DUMP
    append(path, texts("a Blue sky", "red") + texts('x\n"é" ÉTÉ <b>', "blue", number=1))
    append(path, texts("one", "two", number=2, question="Is it blue?"))
    live = following(tmp_path)
    first, second, third = live.batch()["groups"]["id"]
    found = [f"{first}.1", f"{second}.2", third]
    assert live.search("BLUE") == {"found": found, "searched": 3, "of": 3}
    for text in ("été", '\n"é"', "<B>"):
        assert live.search(text)["found"] == [f"{second}.1"]
    assert live.search("item_id")["found"] == [], "keys are not texts"
    assert live.search("blue", after=2)["found"] == [third]
    assert live.search("blue", seconds=0.0)["searched"] == 0
    path.write_text("gone\n" * 1000)
    assert live.search("blue")["found"] == []


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="reads /proc")
def test_a_file_that_cannot_be_read_is_named() -> None:
    live = LiveIndex([Path("/proc/self/mem")])
    live.update(0.05)
    [note] = live.batch()["notes"]
    assert "/mem can't be read (Input/output error)" in note
