"""A policy server that allows so many requests in each window of time."""

import math
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

from aiohttp import web

from reasoning_gym_environment.demo.policy import Policy
from reasoning_gym_environment.demo.server import PolicyServer

Refusal = Callable[[float], web.HTTPException]
"""What a request gets that comes so many seconds before the next window."""

LIMITED = '{"error": {"message": "Rate limit reached for requests."}}'


def seconds(left: float) -> web.HTTPException:
    return _refusal(web.HTTPTooManyRequests, {"Retry-After": str(math.ceil(left))})


def date(left: float) -> web.HTTPException:
    """Dates are in whole seconds."""
    until = formatdate(time.time() + left + 1, usegmt=True)
    return _refusal(web.HTTPTooManyRequests, {"Retry-After": until})


def untold(left: float) -> web.HTTPException:
    return _refusal(web.HTTPTooManyRequests, {})


def unavailable(left: float) -> web.HTTPException:
    return _refusal(web.HTTPServiceUnavailable, {"Retry-After": str(math.ceil(left))})


def _refusal(kind: type[web.HTTPException], headers: dict[str, str]) -> web.HTTPException:
    return kind(text=LIMITED, content_type="application/json", headers=headers)


class RateLimitedServer(PolicyServer):
    """Counts small requests of the start as well.

    Args:
        allowed: requests in each window.
        window: its seconds; it begins with its first request.

    Attributes:
        refused: requests so far.
    """

    def __init__(
        self,
        policy: Policy,
        tokenizer: Any,
        *,
        allowed: int = 20,
        window: float = 0.5,
        refusal: Refusal = seconds,
    ) -> None:
        super().__init__(policy, tokenizer)
        self.refused = 0
        self._allowed = allowed
        self._window = window
        self._refusal = refusal
        self._begun = -math.inf
        self._used = 0

    async def _complete(self, request: Any) -> Any:
        now = time.monotonic()
        if now - self._begun >= self._window:
            self._begun, self._used = now, 0
        if self._used >= self._allowed:
            self.refused += 1
            raise self._refusal(self._begun + self._window - now)
        self._used += 1
        return await super()._complete(request)
