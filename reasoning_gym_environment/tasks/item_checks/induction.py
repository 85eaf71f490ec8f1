"""Checks of items of the category induction."""

from __future__ import annotations

import re

from ...records import Fault
from .faults import Entry, ambiguous


def list_functions(entry: Entry) -> Fault | None:
    """Find counts where each example may also say whether there is any."""
    outputs = set(re.findall(r"Output \d: (.*)", entry["question"]))
    if outputs <= {"[0]", "[1]"} and entry["answer"] not in ("[0]", "[1]"):
        return ambiguous("each example fits a count, and whether there is any")
    return None
