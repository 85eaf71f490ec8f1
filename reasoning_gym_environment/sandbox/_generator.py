"""The generator process, which makes problems from recipes and never sees model text.

Its replies are messages, not pickles: one of a user's module has run what the module holds.
"""

from __future__ import annotations

import os
import pickle
import queue
import resource
import tempfile
import threading
from functools import partial
from typing import Any, BinaryIO

import msgspec

from ..records import Recipe
from ..tasks.catalogue import discover
from ..tasks.datasets import Datasets, json_changes, text_of
from ..tasks.facts import NOT_A_TASK, known_categories
from ..tasks.item_checks import item_fault
from ..tasks.ladders import build_ladders
from ..tasks.modules import ModuleTasks
from ..util.values import describe_error, describe_origin, replace_surrogates
from . import _limits as limits
from . import _protocol as protocol
from ._protocol import (
    CheckEntry,
    Inspect,
    Inspection,
    MadeProblem,
    Reply,
    Request,
    SecondAnswer,
    Solve,
)


def _feed(requests: BinaryIO, inbox: queue.SimpleQueue[bytes]) -> None:
    """Pass requests on. When the parent has gone, end the process even during a slow item."""
    try:
        while (frame := protocol.read_frame(requests)) is not None:
            inbox.put(frame)
    finally:
        os._exit(0)


def answer(
    request: Request, datasets: Datasets, module: ModuleTasks | None = None
) -> bytes:
    """Return the reply to one request; raise MemoryError if the memory is used up."""
    message: Any = module
    entry = b""
    build = partial(datasets.get, parameters={})
    try:
        if request == "ladders":
            found = discover(build, proven=known_categories().keys())
            loaded = found.categories.keys() - found.failures.keys()
            message = build_ladders(loaded - NOT_A_TASK.keys())
        elif isinstance(request, frozenset):
            message = discover(build, proven=request)
        elif isinstance(request, Recipe):
            problem = datasets.problem(request)
            message = MadeProblem(
                question=problem.question,
                oracle=problem.oracle,
                fault=problem.fault,
            )
            entry = problem.entry
        elif isinstance(request, CheckEntry):
            fault = item_fault(*request)
            message = MadeProblem(question="", oracle=None, fault=fault)
        elif isinstance(request, Solve):
            message = SecondAnswer(answer=datasets.second_answer(request.recipe))
        elif isinstance(request, Inspect):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            inspected_entry = datasets.entry(request.recipe)
            after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            message = Inspection(
                content=text_of(inspected_entry),
                json_changes=json_changes(inspected_entry),
                memory=(after - before) * 1024,
            )
        header = msgspec.json.encode(
            Reply(message=message, digest=module.digest if module else "")
        )
    except MemoryError:  # another generator has more: see `run`
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a generator may raise anything: the parent counts it
        # the library puts values into some
        reason = describe_origin(error) if module else describe_error(error)
        text, _ = replace_surrogates(reason[:1000])
        header = msgspec.json.encode(Reply(error=text))
        entry = b""
    return protocol.LENGTH.pack(len(header)) + header + entry


def run(
    requests: BinaryIO,
    replies: BinaryIO,
    datasets: Datasets,
    module: ModuleTasks | None = None,
) -> None:
    """Serve until the parent goes away or memory is used up; first report what is not enforced.

    A user's module has the user's rights here, as at its import.
    """
    os.chdir(tempfile.gettempdir())  # programs of codeio may leave files where they run
    # before the thread: a filter does not bind running ones
    missing_protections = limits.enter_host() if module else limits.enter_generator()
    datasets.limit_memory(
        limits.address_space, limits.address_space() + limits.DATASET_MEMORY
    )
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_feed, args=(requests, inbox), daemon=True).start()
    protocol.write_frame(replies, " ".join(missing_protections).encode())
    while True:
        try:
            reply = answer(pickle.loads(inbox.get()), datasets, module)
        except MemoryError:
            protocol.write_frame(replies, protocol.OUT_OF_MEMORY)
            return
        protocol.write_frame(replies, reply)
