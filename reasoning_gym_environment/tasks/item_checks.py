"""Checks of single items: labels that are false, and questions with no or several right answers.

Each check takes well under a millisecond and runs beside the generator. The solvers of
`audit.solvers` prove that no faulty item passes; neither uses the other's code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..records import Fault

Entry = Mapping[str, Any]
"""An entry of the library: question, answer and metadata."""

CHECKS: Mapping[str, Callable[[Entry], Fault | None]] = {}
"""The check of each task that is known to make faulty items."""


def find_fault(task: str, entry: Entry) -> Fault | None:
    """Return the fault of an item, or None if there is none."""
    check = CHECKS.get(task)
    return check(entry) if check else None
