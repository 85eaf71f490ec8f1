"""The table of how many different questions and items each level has."""

import csv
import json
from collections import defaultdict
from pathlib import Path

from reasoning_gym_environment.tasks.facts import ladder_heights
from research.distinct_items import TABLE, read_drawn, write_table


def levels_by_task(table: Path) -> dict[str, list[str]]:
    levels = defaultdict[str, list[str]](list)
    with table.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            levels[row["task"]].append(row["level"])
    return levels


def test_the_table_has_the_levels_that_exist_and_no_others() -> None:
    assert levels_by_task(TABLE) == {
        task: ["default", *map(str, range(height))]
        for task, height in ladder_heights().items()
    }


def test_levels_above_a_ladder_are_left_out(tmp_path: Path) -> None:
    table = tmp_path / "distinct_items.csv"
    table.write_text("task,level\nrearc,4,200\nrearc,0,200\n", encoding="utf-8")
    drawn = tmp_path / "drawn.jsonl"
    rows = [
        {"task": "gcd", "level": level, "items": [["a?", "a"]]}
        for level in (None, 0, 99)
    ]
    drawn.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    write_table(read_drawn(drawn), table)
    assert levels_by_task(table) == {"gcd": ["default", "0"], "rearc": ["0"]}
