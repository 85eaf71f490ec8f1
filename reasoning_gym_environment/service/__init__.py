"""The reward service: problems and scores over HTTP, for trainers in any language.

An ASGI application over the gym, which makes the problems and scores the completions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceSettings:
    """Address and limits of the service.

    Attributes:
        port: 0 takes a free one.
        token: that clients must send, or several, one a line; None requires none. Each is a client
            that takes turns with others; without tokens, each address is.
        queue: completions that may be pending, half of them of one client.
        max_body: bytes of a request.
        drain: seconds for in-flight requests at the end.
        streams: folder for the states of streams; None disables streams.
        side_by_side: batches of completions scored at once.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    token: str | None = None
    queue: int = 8192
    max_body: int = 4 * 2**20
    drain: float = 20.0
    streams: Path | None = None
    side_by_side: int = 4
