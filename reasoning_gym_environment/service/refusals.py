"""Why a request isn't answered: an HTTP status and a sentence that names the way out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Refusal(Exception):
    """A request that gets an error in place of an answer.

    Attributes:
        status: of HTTP; 4xx is for the client to put right.
        headers: of the reply.
    """

    def __init__(
        self, status: int, message: str, *, headers: Mapping[str, str] = NO_HEADERS
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


def busy(status: int, message: str) -> Refusal:
    """Refuse for now: the same request may succeed in a second."""
    return Refusal(status, message, headers={"Retry-After": "1"})
