"""What one version of reasoning-gym offers, known without importing it.

`shipped.json` is written by `make docs`; `tests/tasks/test_shipped.py` proves it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from .catalogue import Discovery
from .ladders import TaskLadder

TABLE = Path(__file__).with_name("shipped.json")


class Offer(NamedTuple):
    """What the library offers: its tasks, and the ladder of each by name."""

    discovery: Discovery
    ladders: dict[str, TaskLadder]


@cache
def ladder_heights() -> dict[str, int]:
    """Count the levels of each task, in the version that the file is of."""
    ladders = json.loads(TABLE.read_text(encoding="utf-8"))["ladders"]
    return {task: len(row["levels"]) for task, row in ladders.items()}


def shipped(installed: str = "") -> Offer | None:
    """Read what the installed version offers; None where the file is of another version.

    Args:
        installed: the version; unless given, it is looked up.
    """
    content = json.loads(TABLE.read_text(encoding="utf-8"))
    if content["version"] != (installed or version("reasoning-gym")):
        return None
    ladders = {
        task: TaskLadder(
            levels=tuple(row["levels"]),
            origin=row["origin"],
            reason=row["reason"],
            parameters=tuple(row["parameters"]),
        )
        for task, row in content["ladders"].items()
    }
    return Offer(Discovery(content["categories"], content["failures"], None), ladders)


def proven_tasks(installed: str = "") -> frozenset[str]:
    """Name what is known to build in the installed version; nothing where it isn't the file's."""
    offer = shipped(installed)
    if offer is None:
        return frozenset()
    return frozenset(offer.discovery.categories.keys() - offer.discovery.failures.keys())


def to_json(offer: Offer, of_version: str) -> dict[str, Any]:
    """Describe an offer as `shipped` reads it."""
    return {
        "version": of_version,
        "categories": offer.discovery.categories,
        "failures": offer.discovery.failures,
        "ladders": {task: asdict(ladder) for task, ladder in offer.ladders.items()},
    }
