"""Graceful shutdown: signals become cancellation, so that cleanup always runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

logger = logging.getLogger(__name__)

_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextlib.asynccontextmanager
async def graceful_shutdown(close: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run `close` after the body, also after a signal, cancellation or an exception.

    Handles SIGTERM, SIGINT and, unless `nohup` ignores it, SIGHUP.

    Raises:
        SystemExit: with 128 + the signal's number, after a signal.
    """
    received: list[int] = []
    task = asyncio.current_task()
    assert task is not None

    loop = asyncio.get_running_loop()
    handled = _handled() if threading.current_thread() is threading.main_thread() else []

    def stop(number: int) -> None:
        received.append(number)
        logger.info(
            "Received %s: shutting down; send it again to exit immediately",
            signal.strsignal(number),
        )
        for each in handled:
            loop.remove_signal_handler(each)
        task.cancel()

    for number in handled:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    except asyncio.CancelledError:
        if not received:
            raise
    finally:
        closing = asyncio.ensure_future(close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            if not received:
                raise
            await closing  # the first signal arrived during close()
        for number in handled:
            loop.remove_signal_handler(number)
    if received:
        raise SystemExit(128 + received[0])


def _handled() -> list[signal.Signals]:
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [each for each in _STOPPING if not (ignored and each is signal.SIGHUP)]
