"""Checks of items of the category arc."""

from __future__ import annotations

import re

from ...records import Fault
from .faults import Entry, unanswerable


def arc(entry: Entry) -> Fault | None:
    """Find a label that changes its grid where no example does."""
    *examples, question = entry["question"].split("Input:")[1:]
    for example in examples:
        before, after = re.split("Output:|Example|Below", example)[:2]
        if before.strip() != after.strip():
            return None
    if question.strip() == entry["answer"].strip():
        return None
    return unanswerable("no example shows the rule: all leave their grid as it is")
