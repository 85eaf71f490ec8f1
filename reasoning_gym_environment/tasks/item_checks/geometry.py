"""Checks of items of the category geometry."""

from __future__ import annotations

from ...records import Fault
from .faults import Entry, unanswerable


def simple_geometry(entry: Entry) -> Fault | None:
    if float(entry["answer"]) < 180:
        return None
    return unanswerable(f"no convex polygon has an angle of {entry['answer']} degrees")
