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

CATALOGUE_REQUEST = "catalogue"
"""The request for a `Discovery`; every other request is a `Recipe`."""


def _feed(requests: BinaryIO, inbox: queue.SimpleQueue[bytes]) -> None:
    """Pass requests on; when the parent is gone, end the process even amid a slow item."""
    while (frame := protocol.read_frame(requests)) is not None:
        inbox.put(frame)
    os._exit(0)


def answer(request: Recipe | str, datasets: Datasets) -> Discovery | Problem | str:
    """The reply to one request: a Discovery or a Problem, or text saying what went wrong."""
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
    protocol.write_frame(replies, b"ready")
    while True:
        reply = answer(pickle.loads(inbox.get()), datasets)
        protocol.write_frame(replies, pickle.dumps(reply))
