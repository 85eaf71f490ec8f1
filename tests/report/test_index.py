"""The columnar index of stored groups, which the page's figures come from."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from page_blocks import ROOT
from report_files import row, write

from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.report.data import read_report_data
from reasoning_gym_environment.report.index import GroupIndex
from reasoning_gym_environment.storage.rows import StoredGroup
from reasoning_gym_environment.storage.run_record import record_path
from reasoning_gym_environment.tasks.facts import level_floors, stored_snapshot


def index_of(*rows: dict[str, object], file: Path | None = None) -> GroupIndex:
    index = GroupIndex()
    for number, each in enumerate(rows):
        index.add(StoredGroup.from_json(each, file=file), number)
    return index


def test_an_own_task_has_its_modules_category_and_its_proofs_chance() -> None:
    rows = [
        row([1.0], task="mine") | {"source": "my_tasks", "chance": 0.25},
        row([1.0], task="mine", level=2.0) | {"source": "my_tasks", "chance": 0.25},
        row([1.0], task="unknown"),
    ]
    levels = stored_snapshot()["ladders"]["gcd"]["levels"]
    recipe = Recipe(task="gcd", seed=0, level=1, parameters=levels[1])
    rows.append(row([0.0]) | {"recipe": asdict(recipe)})
    rows.append(rows[-1] | {"scoring": {"solved_threshold": 0.5}})
    batch = index_of(*rows).batch()
    assert [task["category"] for task in batch["tasks"]] == [
        "my_tasks",
        "other",
        "arithmetic",
    ]
    of_level = level_floors(recipe)
    assert of_level is not None
    # Proofs try default items.
    assert batch["groups"]["chance"][:3] == [0.25, None, None]
    assert batch["groups"]["chance"][3:] == [of_level.chance.solved, None]


def test_columns_stand_in_parallel() -> None:
    rows = [
        row([1.0, 0.0], task="lcm", level=1.0),
        row([None, 0.25], number=1),
        row([1.0]),
    ]
    batch = index_of(*rows).batch()
    groups, rollouts = batch["groups"], batch["rollouts"]
    assert {len(values) for values in groups.values()} == {3}
    assert {len(values) for values in rollouts.values()} == {sum(groups["size"])}
    assert [batch["tasks"][task]["name"] for task in groups["task"]] == [
        "lcm",
        "gcd",
        "gcd",
    ]
    assert (
        groups["signal"],
        groups["at"],
        [own is not None for own in groups["chance"]],
    ) == (
        [1, None, None],
        [0, 1, 2],
        [False, True, True],
    )
    assert groups["level"] == [1.0, None, None]
    assert groups["difficulty"][0] > 0
    statuses = [batch["statuses"][status] for status in rollouts["status"]]
    assert statuses == ["solved", "wrong", "unscored", "wrong", "solved"]
    assert rollouts["score"] == [1.0, 0.0, None, 0.25, 1.0]


def test_a_later_batch_holds_what_came_since() -> None:
    index = index_of(row([1.0]))
    cursor = int(index.batch()["cursor"])
    index.add(StoredGroup.from_json(row([0.0, 0.0], task="lcm", number=1)))
    batch = index.batch(cursor)
    assert not batch["restart"]
    assert (batch["groups"]["task"], batch["rollouts"]["solved"]) == ([1], [0, 0])
    assert len(batch["tasks"]) == 2


def test_problems_and_identifiers_are_told_apart() -> None:
    twice = [
        row([1.0]),
        row([0.0], time="2026-01-01T00:09:00+00:00"),
        row([1.0], number=1),
    ]
    groups = index_of(*twice, row([1.0])).batch()["groups"]
    assert groups["problem"] == [0, 0, 1, 0]
    assert len(set(groups["id"])) == 4
    assert groups["id"][:3] == index_of(*twice).batch()["groups"]["id"]


def test_a_row_costs_the_same_however_often_it_came() -> None:
    index, group = GroupIndex(), StoredGroup.from_json(row([1.0]), file=None)
    lines: list[int] = []

    def count(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        lines[-1] += event == "line"
        return count

    before = sys.gettrace()
    for _ in range(50):
        lines.append(0)
        sys.settrace(count)
        index.add(group)
        sys.settrace(before)
    assert lines[2] == lines[-1]
    identifiers = index.batch()["groups"]["id"]
    assert identifiers[1:] == [f"{identifiers[0]}-{copy}" for copy in range(2, 51)]


def test_an_evaluation_is_one_run_at_all_its_difficulties(tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    rows = [
        row([1.0], evaluation=True) | {"difficulty": value, "step": 30}
        for value in (None, 0.5)
    ]
    files = [
        write(tmp_path, [row([1.0])]),
        write(tmp_path / "step-1", rows, "samples.jsonl"),
    ]
    index = GroupIndex()
    for group in read_report_data(files).groups:
        index.add(group)
    runs = index.batch()["runs"]
    assert [(run["id"], run["step"]) for run in runs[1:]] == [
        (str(tmp_path / "step-1"), 30)
    ]
    assert index.batch()["groups"]["difficulty"] == [None, None, 0.5]
    assert index.batch()["groups"]["step"] == [None, 30, 30]
    name = f"{tmp_path.name}/step-1"
    assert [(run["name"], run["kind"]) for run in runs] == [
        ("run r", "training"),
        (name, "evaluation"),
    ]


RECORD: dict[str, Any] = {
    "run": "r",
    "started": "2026-01-01T00:00:00+00:00",
    "updated": "2026-01-01T00:01:00+00:00",
    "settings": {"model_name": "a model", "temperature": 0.5, "tasks": ["gcd"]},
    "outcomes": {"sent": 3},
    "servers": [
        {
            "url": "http://a:1/v1",
            "in_flight": 2,
            "waiting": 1,
            "replies": 7,
            "seconds": 1.5,
            "is_available": True,
        }
    ],
    "waits": [{"reason": "a trainer", "since": "2026-01-01T00:00:10+00:00"}],
    "events": [
        {
            "time": "2026-01-01T00:00:20+00:00",
            "text": "registered",
            "until": "2026-01-01T00:00:20+00:00",
        }
    ],
    "warnings": [
        {"time": "2026-01-01T00:00:30+00:00", "level": "WARNING", "text": "slow"}
    ],
}


def test_a_runs_record_stands_in_its_header(tmp_path: Path) -> None:
    record_path(tmp_path, "r").write_text(json.dumps(RECORD))
    (run,) = index_of(row([1.0]), file=tmp_path / "x.jsonl").batch()["runs"]
    assert run["header"][:3] == [
        ["model", "a model"],
        ["temperature", "0.5"],
        ["tasks", "1"],
    ]
    assert run["header"][-1] == ["groups", "all 1"]
    assert run["started"] == RECORD["started"]
    assert run["warnings"] == RECORD["warnings"]
    assert run["system_prompt"] == "Think, then answer."


def test_a_runs_name_leads_to_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "reasoning_gym_environment_run_x").mkdir()
    (tmp_path / "secret.json").write_text(
        '{"run": "r", "started": "s", "updated": "u"}'
    )
    hostile = {**row([1.0]), "run": "x/../secret"}
    (run,) = index_of(hostile, file=tmp_path / "x.jsonl").batch()["runs"]
    assert run["started"] == ""


VERSION = 2
LAYOUT = {
    "cursor": "text",
    "restart": "truth",
    "runs": [
        {
            "id": "text",
            "kind": "text",
            "name": "text",
            "setting": {"model": "text", "curriculum": "text", "tasks": "text"},
            "folder": "text",
            "header": [["text"]],
            "rules": "text",
            "system_prompt": "text",
            "step": "number",
            "started": "text",
            "updated": "text",
            "ended": "text",
            "groups": "number",
            "target": "number",
            "outcomes": {"sent": "number"},
            "servers": [
                {
                    "url": "text",
                    "in_flight": "number",
                    "waiting": "number",
                    "replies": "number",
                    "seconds": "number",
                    "is_available": "truth",
                }
            ],
            "waits": [{"reason": "text", "since": "text", "until": "text"}],
            "events": [{"time": "text", "text": "text", "until": "text"}],
            "warnings": [{"time": "text", "level": "text", "text": "text"}],
        }
    ],
    "tasks": [
        {
            "name": "text",
            "category": "text",
            "no_reasoning": "number",
            "levels": "number",
        }
    ],
    "statuses": ["text"],
    "groups": {
        "id": ["text"],
        "at": ["number"],
        "time": ["number"],
        "number": ["number"],
        "step": ["number"],
        "level": ["number"],
        "difficulty": ["number"],
        "signal": ["number"],
        "asked_again": ["number"],
        "chance": ["number"],
        "size": ["number"],
        "oracle": ["text"],
        "run": ["number"],
        "task": ["number"],
        "problem": ["number"],
        "question": ["number"],
    },
    "rollouts": {
        "status": ["number"],
        "reward": ["number"],
        "score": ["number"],
        "solved": ["number"],
        "tokens": ["number"],
        "truncated": ["number"],
        "answer": ["text"],
        "format_failure": ["number"],
    },
}
"""What the version stands for: the names in a batch, and the kinds of their values."""
KINDS = {bool: "truth", int: "number", float: "number", str: "text"}


def layout(value: Any) -> Any:
    """Return the names and the kinds of values in a part of a batch, those of a list once."""
    if isinstance(value, dict):
        return {name: layout(each) for name, each in value.items()}
    if isinstance(value, list):
        kinds = [layout(each) for each in value]
        return [kind for place, kind in enumerate(kinds) if kind not in kinds[:place]]
    return KINDS[type(value)]


def test_a_changed_layout_has_another_version(tmp_path: Path) -> None:
    levels = stored_snapshot()["ladders"]["gcd"]["levels"]
    recipe = Recipe(task="gcd", seed=0, level=1, parameters=levels[1])
    group = row([1.0, 0.0]) | {"recipe": asdict(recipe), "step": 5}
    curriculum = {"complexity_mode": "curriculum", "curriculum_target_accuracy": 0.6}
    record = {**RECORD, "settings": RECORD["settings"] | curriculum}
    record_path(tmp_path, "r").write_text(json.dumps(record))
    batch = index_of(group, file=tmp_path / "x.jsonl").batch()
    version = batch.pop("version")
    assert (version, layout(batch)) == (VERSION, LAYOUT), (
        "the index has another layout: raise the version in report/index.py and in "
        "report/assets/data.js, and write version and layout here"
    )


def test_the_page_takes_the_version_of_the_index() -> None:
    script = ROOT / "reasoning_gym_environment/report/assets/data.js"
    check = f"batch.version !== {index_of().batch()['version']})"
    assert check in script.read_text(encoding="utf-8")
