"""Checks of items of the category code."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from zlib import crc32

from ...records import Fault
from .faults import Entry, ambiguous, false_label, unanswerable


def codeio(entry: Entry) -> Fault | None:
    """Find programs that failed or whose runs differ, and questions for an input."""
    question, _, code = entry["question"].rpartition(
        "not copy spans of code directly.\n"
    )
    if entry["answer"] == "{}" and entry["metadata"]["input_data"] == {}:
        return false_label("the program failed")
    if f"{crc32(code.strip().encode()):08x}" in _unpredictable_programs():
        return unanswerable("the program's runs differ")
    if "Can you predict a feasible input" in question:
        return ambiguous("other inputs may give the output, and one is paid")
    return None


@cache
def _unpredictable_programs() -> frozenset[str]:
    """Return the CRC-32 of each program that `research/codeio_programs.py` found."""
    path = Path(__file__).with_name("unpredictable_programs.json")
    return frozenset(json.loads(path.read_text(encoding="utf-8")))
