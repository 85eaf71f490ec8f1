"""Item checks find the faults of entries made by hand, and none in sound ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from reasoning_gym_environment.tasks.item_checks import CHECKS, item_fault

CASES: dict[str, list[dict[str, Any]]] = json.loads(
    Path(__file__).with_name("item_checks.json").read_text(encoding="utf-8")
)
"""By task entries made by hand, each with the kind of its fault (null if it is sound), and why."""


@pytest.mark.parametrize("task", sorted(CHECKS))
def test_a_check_judges_faulty_and_sound_entries_made_by_hand(task: str) -> None:
    faults = {case["fault"] for case in CASES[task]}
    assert None in faults
    assert len(faults) > 1
    for case in CASES[task]:
        fault = item_fault(task, case)
        assert (fault.kind.value if fault else None) == case["fault"], case["why"]
        assert fault is None or fault.detail


def test_every_case_is_of_a_check() -> None:
    assert CASES.keys() <= CHECKS.keys()


def test_a_task_without_a_check_has_no_faults() -> None:
    assert (
        item_fault("no such task", {"question": "", "answer": "", "metadata": {}})
        is None
    )
