"""Patience for clients that have none: what is refused for now is tried again here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from .refusals import Refusal

Found = TypeVar("Found")


async def patiently(attempt: Callable[[], Awaitable[Found]], pauses: Sequence[float]) -> Found:
    """Try what may be refused for now (429, 503), and again after each pause.

    Args:
        pauses: seconds before the second try and those after it.

    Raises:
        Refusal: the last try's, or one that no pause will change.
    """
    for pause in pauses:
        try:
            return await attempt()
        except Refusal as refusal:
            if refusal.status not in (429, 503):
                raise
        await asyncio.sleep(pause)
    return await attempt()
