"""A user's function as a source of completions, in place of inference servers."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from array import array
from collections.abc import Awaitable, Callable
from typing import Any

from ..inference.dialects import SamplingParams
from ..inference.errors import InferenceError
from ..inference.finish_reasons import STOP
from ..inference.prompts import Prompt, build_messages
from ..inference.usage import RequestUsage
from ..records import Completion
from ..util.concurrency import gather_or_cancel
from ..util.values import describe_origin, shorten

Complete = Callable[[list[dict[str, str]]], str | Awaitable[str]]
"""A function from messages, such as {"role": "user", "content": "…"}, to a reply's text."""


class FunctionClient:
    """Asks a function for completions. What it does wrong is an InferenceError.

    Until it has returned a text, its failures are final, so that a few end an evaluation.

    Args:
        concurrency: calls at once.
        timeout: seconds that a call may take; then its reply is ignored.

    Attributes:
        refused: parameters that requests don't have; the function chooses its temperature.
        waiting: why nothing is asked for; never any reason.
        part_size: completions of a request; each is stored as it comes.
    """

    refused = frozenset({"temperature"})
    waiting = ""
    part_size = 1

    def __init__(
        self,
        complete: Complete,
        *,
        system_prompt: str,
        concurrency: int,
        timeout: float,
    ) -> None:
        self._complete = complete
        self._system_prompt = system_prompt
        self._slots = asyncio.Semaphore(concurrency)
        self._timeout = timeout
        self._has_replied = False

    def prompt(self, question: str) -> Prompt:
        """Return a question's messages."""
        messages = build_messages(self._system_prompt, question)
        return Prompt(messages=messages, text="", tokens=array("i"))

    async def sample(
        self,
        question: str,
        *,
        n: int,
        length_limit: int,
        sampling: SamplingParams,
        record: Callable[[RequestUsage], None],
    ) -> list[Completion]:
        """Return `n` completions, which the function itself samples and limits."""
        texts = await gather_or_cancel(self._reply(question) for _ in range(n))
        characters = sum(len(m["content"]) for m in self.prompt(question).messages)
        return [
            Completion(
                text=text,
                tokens=(),
                masks=(),
                logprobs=None,
                finish_reason=STOP,
                usage=(characters, len(text)),
            )
            for text in texts
        ]

    def plan(self, question: str, *, n: int, length_limit: int) -> None:
        """Return None: only the function knows what it requests."""

    def take_probe_usage(self) -> list[RequestUsage]:
        """Return nothing: a function isn't probed."""
        return []

    async def _reply(self, question: str) -> str:
        async with self._slots:
            # Each call has messages of its own, which it may change.
            calling = asyncio.ensure_future(self._call(self.prompt(question).messages))
            calling.add_done_callback(_ignore)
            try:
                await asyncio.wait([calling], timeout=self._timeout)
            finally:
                calling.cancel()  # has no effect on one that has ended
        if not calling.done():
            raise self._failure(f"no reply in {self._timeout:g} seconds")
        if calling.cancelled():
            raise self._failure("its call was cancelled")
        error = calling.exception()
        if error is not None:
            raise self._failure(describe_origin(error))
        reply = calling.result()
        if not isinstance(reply, str):
            hint = ": return its content" if isinstance(reply, dict | list) else ""
            raise self._failure(f"it must return text, got {shorten(reply)}{hint}")
        self._has_replied = True
        return reply

    def _failure(self, reason: str) -> InferenceError:
        one_line = " ".join(reason.split())
        return InferenceError(
            f"{name_of(self._complete)}: {one_line}", is_transient=self._has_replied
        )

    async def _call(self, messages: list[dict[str, str]]) -> Any:
        try:
            if is_coroutine_function(self._complete):
                reply = self._complete(messages)
            else:
                reply = await _in_own_thread(lambda: self._complete(messages))
            return await reply if inspect.isawaitable(reply) else reply
        except SystemExit as error:  # which would end the event loop
            raise RuntimeError(f"it raised {error!r}") from error


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name, or that of an object's class."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return str(getattr(function, "__name__", type(function).__name__))


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Return whether a function, or an object that is called, is asynchronous."""
    call = getattr(function, "__call__", None)  # noqa: B004 - of an object, whose method it is
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


async def _in_own_thread(work: Callable[[], Any]) -> Any:
    """Run work in a daemon thread of its own: one that hangs keeps nothing else from ending."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(result)
        else:
            outcome.set_exception(error)

    def run() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 - it is raised in the event loop
            error = raised
            # A future takes no StopIteration, and others would end the event loop.
            if isinstance(raised, StopIteration) or not isinstance(raised, Exception):
                error = RuntimeError(f"it raised {raised!r}")
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="complete", daemon=True).start()
    return await outcome


def _ignore(calling: asyncio.Future[Any]) -> None:
    """Take the outcome of a call, which nobody does after a timeout: asyncio would log it."""
    if not calling.cancelled():
        calling.exception()
