"""The generator process, which makes problems from recipes and never sees model text."""

from __future__ import annotations

import os
import pickle
import queue
import tempfile
import threading
from typing import BinaryIO

from ..records import Problem, Recipe
from ..tasks.catalogue import Discovery, discover, read_registry
from ..tasks.datasets import Datasets
from ..tasks.facts import NOT_A_TASK
from ..tasks.ladders import TaskLadder, build_ladders
from . import _limits as limits
from . import _protocol as protocol

Request = Recipe | frozenset[str] | None
"""Asks for a recipe's `Problem`; for a `Discovery`, where these tasks are known to build and not
tried; or for every task's `TaskLadder`."""

Reply = Discovery | dict[str, TaskLadder] | Problem | str
"""The result, or text that says what went wrong."""


def _feed(requests: BinaryIO, inbox: queue.SimpleQueue[bytes]) -> None:
    """Pass requests on. When the parent has gone, end the process even during a slow item."""
    try:
        while (frame := protocol.read_frame(requests)) is not None:
            inbox.put(frame)
    finally:
        os._exit(0)


def answer(request: Request, datasets: Datasets) -> Reply:
    """Return the reply to one request; raise MemoryError if the memory is used up."""
    try:
        if request is None:
            return build_ladders(read_registry().keys() - NOT_A_TASK.keys())
        if isinstance(request, frozenset):
            return discover(lambda name: datasets.get(name, {}), proven=request)
        return datasets.problem(request)
    except MemoryError:  # another generator has more: see `run`
        raise
    except Exception as error:  # noqa: BLE001 - a generator may raise anything: the parent counts it
        return f"{type(error).__name__}: {error}"[:1000]  # the library puts values into some


def run(requests: BinaryIO, replies: BinaryIO, datasets: Datasets) -> None:
    """Serve until the parent goes away or memory is used up; first report what is not enforced."""
    os.chdir(tempfile.gettempdir())  # programs of codeio may leave files where they run
    gaps = limits.enter_generator()  # before the thread: a filter does not bind running ones
    datasets.limit_memory(limits.address_space, limits.address_space() + limits.DATASET_MEMORY)
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_feed, args=(requests, inbox), daemon=True).start()
    protocol.write_frame(replies, " ".join(gaps).encode())
    while True:
        try:
            reply = pickle.dumps(answer(pickle.loads(inbox.get()), datasets))
        except MemoryError:
            protocol.write_frame(replies, protocol.OUT_OF_MEMORY)
            return
        protocol.write_frame(replies, reply)
