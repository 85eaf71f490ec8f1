"""A row from outside can be shown, exported and reported, or is refused with what is wrong."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from json_values import ODD, places, with_value, without

from reasoning_gym_environment.commands.show import render_rollout
from reasoning_gym_environment.report.health import RunHealth
from reasoning_gym_environment.report.index import GroupIndex
from reasoning_gym_environment.report.page import row_of
from reasoning_gym_environment.storage.export import dpo_rows, record_rows, sft_rows
from reasoning_gym_environment.storage.rows import StoredGroup

ROW: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "stored/dump.jsonl").read_text().splitlines()[0]
)
PLACES = list(places(ROW))


def require_readable(row: Any) -> None:
    try:
        group = StoredGroup.from_json(row)
    except ValueError:
        return
    assert json.loads(json.dumps(group.to_json())).keys() >= {
        "item_id",
        "rollouts",
        "recipe",
    }
    for number in range(len(group.rollouts)):
        render_rollout(group, number, full=True)
    for rows_of in (sft_rows, dpo_rows, record_rows):
        list(rows_of(group))
    index = GroupIndex()
    index.add(group)
    json.dumps(index.batch(), allow_nan=False)
    json.dumps(row_of(group, 100), allow_nan=False)
    RunHealth().add(group)


def test_the_stored_row_is_read() -> None:
    assert StoredGroup.from_json(ROW).to_json() == ROW


@given(st.sampled_from(PLACES), ODD)
def test_a_row_with_anything_in_any_place_is_read_or_refused(
    place: Any, value: Any
) -> None:
    require_readable(with_value(ROW, place, value))
    require_readable(without(ROW, place))


@given(ODD)
def test_a_row_of_any_shape_is_read_or_refused(row: Any) -> None:
    require_readable(row)
