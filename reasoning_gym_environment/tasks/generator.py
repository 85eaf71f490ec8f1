"""The generator process: makes problems from recipes and never sees model text."""

from __future__ import annotations

import os
import pickle
import queue
import threading
from typing import BinaryIO

from ..core.records import Problem, Recipe
from . import protocol
from .catalogue import Discovery, discover
from .datasets import Datasets
from .levels import LevelTable, level_table

CATALOGUE_REQUEST = "catalogue"
"""The request for a `Discovery`."""

LEVELS_REQUEST = "levels"
"""The request for a `LevelTable`; every request that is no text is a `Recipe`."""


def _feed(requests: BinaryIO, inbox: queue.SimpleQueue[bytes]) -> None:
    """Pass requests on; when the parent is gone, end the process even amid a slow item."""
    while (frame := protocol.read_frame(requests)) is not None:
        inbox.put(frame)
    os._exit(0)


def answer(request: Recipe | str, datasets: Datasets) -> Discovery | LevelTable | Problem | str:
    """The reply to one request: what it asks for, or text saying what went wrong."""
    if request == LEVELS_REQUEST:
        return level_table()
    if isinstance(request, str):
        return discover(lambda name: datasets.get(name, {}))
    try:
        return datasets.problem(request)
    except Exception as error:  # noqa: BLE001 - a generator may raise anything: the parent counts it
        return f"{type(error).__name__}: {error}"


def run(requests: BinaryIO, replies: BinaryIO) -> None:
    """Serve until the parent goes away."""
    datasets = Datasets()
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_feed, args=(requests, inbox), daemon=True).start()
    protocol.write_frame(replies, b"")
    while True:
        reply = answer(pickle.loads(inbox.get()), datasets)
        protocol.write_frame(replies, pickle.dumps(reply))
