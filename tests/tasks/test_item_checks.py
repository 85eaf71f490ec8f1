"""Item checks find the faults of entries made by hand, and none in sound ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from reasoning_gym_environment.tasks.item_checks import CHECKS, item_fault

CASES: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("item_checks.json").read_text(encoding="utf-8")
)
"""Entries made by hand: task, entry, the kind of its fault (null if it is sound), and why."""


@pytest.mark.parametrize(
    "case", [pytest.param(each, id=f"{each['task']}: {each['why']}") for each in CASES]
)
def test_the_check_judges_an_entry_made_by_hand(case: dict[str, Any]) -> None:
    fault = item_fault(case["task"], case["entry"])
    assert (fault.kind.value if fault else None) == case["fault"]
    assert fault is None or fault.detail


@pytest.mark.parametrize("task", sorted(CHECKS))
def test_every_check_has_a_faulty_and_a_sound_case(task: str) -> None:
    faults = {case["fault"] for case in CASES if case["task"] == task}
    assert None in faults
    assert len(faults) > 1


def test_a_task_without_a_check_has_no_faults() -> None:
    assert item_fault("no such task", {"question": "", "answer": "", "metadata": {}}) is None
