"""TCP connections that end when nobody is at their other end any more."""

from __future__ import annotations

import socket
from typing import Any

import aiohttp

IDLE_SECONDS = 30
"""Silence on a connection before the kernel asks whether the other end is there: less than the
minutes after which balancers and address translation drop an idle connection."""

INTERVAL_SECONDS = 10
PROBES = 3
"""The kernel asks so many times at this interval: a vanished node is noticed in a minute."""


def connector(**settings: Any) -> aiohttp.TCPConnector:
    """Return a connector whose sockets have keep-alive."""
    return aiohttp.TCPConnector(socket_factory=_open_socket, **settings)


def _open_socket(address: Any) -> socket.socket:
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = "TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE"
    options = {
        idle: IDLE_SECONDS,
        "TCP_KEEPINTVL": INTERVAL_SECONDS,
        "TCP_KEEPCNT": PROBES,
        # Keep-alive doesn't watch a connection whose own data was not acknowledged.
        "TCP_USER_TIMEOUT": 1000 * (IDLE_SECONDS + PROBES * INTERVAL_SECONDS),
    }
    for name, value in options.items():
        if hasattr(socket, name):  # macOS has no user timeout
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return opened
