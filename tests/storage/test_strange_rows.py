"""A row from outside is a group that everything can read, or is refused with what is wrong."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from json_values import ODD, places, with_value, without

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
    assert json.loads(json.dumps(group.to_json())).keys() >= {"item_id", "rollouts", "recipe"}
    for rollout in group.rollouts:
        assert isinstance(rollout.text, str)
        assert list(rollout.prompt) == list(rollout.conversation[:-1])


def test_the_stored_row_is_read() -> None:
    assert StoredGroup.from_json(ROW).to_json() == ROW


@given(st.sampled_from(PLACES), ODD)
def test_a_row_with_anything_in_any_place_is_read_or_refused(place: Any, value: Any) -> None:
    require_readable(with_value(ROW, place, value))
    require_readable(without(ROW, place))


@given(ODD)
def test_a_row_of_any_shape_is_read_or_refused(row: Any) -> None:
    require_readable(row)
