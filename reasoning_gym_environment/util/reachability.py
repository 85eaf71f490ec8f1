"""Whether something listens at a URL, found out before work depends on it, and who reaches it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import urlsplit

from ..errors import TRY_AGAIN, FixableError

logger = logging.getLogger(__name__)

_ATTEMPT_SECONDS = 5.0
_PAUSE_SECONDS = 1.0


class UnreachableError(FixableError):
    """Nothing listens where a server was expected."""

    exit_status = TRY_AGAIN


class UnusableUrlError(UnreachableError):
    """Nothing can ever listen there."""

    exit_status = 2


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches an address.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
        (True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _connect(url: str) -> None:
    """Connect once; raises OSError, or ValueError when the URL names no host or a bad port."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("no host in it")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        _, writer = await asyncio.wait_for(
            asyncio.open_connection(parts.hostname, port), _ATTEMPT_SECONDS
        )
    except asyncio.TimeoutError as error:
        raise OSError("no answer") from error
    writer.close()


async def require_reachable(
    urls: Sequence[str], *, what: str, way_out: str, seconds: float, interval: float = 10.0
) -> None:
    """Wait until something listens at one of the URLs.

    Args:
        what: names the server in messages.
        way_out: what the user can do, in messages.
        seconds: how long to keep trying.
        interval: seconds between lines in the log; the first comes at once.

    Raises:
        UnreachableError: nothing did.
        UnusableUrlError: a URL is malformed.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + seconds
    pause = min(_PAUSE_SECONDS, interval)
    rounds_a_line = round(interval / pause)
    attempt = 0
    while True:
        attempt += 1
        problems = []
        for url in urls:
            try:
                await _connect(url)
                return
            except ValueError as error:
                raise UnusableUrlError(f"{what}: {url!r} is no usable URL: {error}") from error
            except OSError as error:
                problems.append(f"{url} ({error})")
        said = f"{what} can't be reached at {', '.join(problems)}"
        if loop.time() >= give_up:
            raise UnreachableError(f"{said}: {way_out}")
        left = give_up - loop.time()
        if (attempt - 1) % rounds_a_line == 0:
            logger.warning("%s, attempt %d: %s; %.0f s left", said, attempt, way_out, left)
        await asyncio.sleep(min(pause, left))
