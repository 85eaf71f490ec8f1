"""A row from outside can be shown, exported and reported, or is refused with what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
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
AT_DEFAULT = {
    **ROW,
    "recipe": {**ROW["recipe"], "level": None, "parameters": {}},
    "time": "2026-01-01T00:00:00+00:00",
}
ROWS = [ROW, AT_DEFAULT]
PLACES = [(row, place) for row in ROWS for place in places(row)]
NOW = 1_767_225_600.0  # of 2026


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
    health = RunHealth()
    health.add(group)
    json.dumps([health.lines(trains=True, now=NOW), health.pace(NOW)], allow_nan=False)


def test_the_stored_row_is_read() -> None:
    assert StoredGroup.from_json(ROW).to_json() == ROW


@given(st.sampled_from(PLACES), ODD)
def test_a_row_with_anything_in_any_place_is_read_or_refused(
    row_and_place: Any, value: Any
) -> None:
    row, place = row_and_place
    require_readable(with_value(row, place, value))
    require_readable(without(row, place))


@pytest.mark.parametrize(
    "time",
    [
        "9999-12-31T23:59:59-23:59",
        "9999-12-31T23:59:59.999999+00:00",
        "0001-01-01T00:00:00+23:59",
        "0001-01-01",
    ],
)
def test_a_row_from_the_ends_of_time_can_be_reported(time: str) -> None:
    require_readable({**ROW, "time": time})


@given(ODD)
def test_a_row_of_any_shape_is_read_or_refused(row: Any) -> None:
    require_readable(row)
