"""`watch`: the report's page of runs that still write, over HTTP."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from argparse import SUPPRESS, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..util.command_line import Parser, number
from ..util.concurrency import SWITCH_SECONDS
from ..util.outages import is_loopback

if TYPE_CHECKING:
    from ..report.live_server import LiveServer

TOKEN_VARIABLE = "REASONING_GYM_WATCH_TOKEN"


def main(arguments: Sequence[str]) -> int:
    """Serve the page until SIGTERM or SIGINT; FixableError if it cannot start."""
    options = build_parser().parse(arguments)
    from ..report.live import LiveIndex
    from ..report.live_server import LiveServer
    from ..report.page import live_page
    from .rewards import read_token  # slow, and not needed for --help

    # the page's address has it, which is printed
    token = read_token(options.token_file, TOKEN_VARIABLE, options.host, logs=False)
    live = LiveIndex(options.files, only_new=options.new)
    sys.setswitchinterval(SWITCH_SECONDS)
    address = {"host": options.host, "port": options.port}
    server = LiveServer(
        live,
        live_page(),
        **address,
        token=token,
        allowed_hosts=options.allow_host,
    )
    asyncio.run(_serve(server, options))
    return 0


async def _serve(server: LiveServer, options: Namespace) -> None:
    """Serve until the first signal, or until whoever started this process has ended."""
    from ..service.server import first_signal

    ended = first_signal()
    report = bytearray()
    if options.until_input_ends:
        loop = asyncio.get_running_loop()

        def wait() -> None:
            while part := os.read(0, 4096):
                report.extend(part)
            loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=wait, daemon=True).start()
    async with server:
        print(server.url, flush=True)
        if not options.until_input_ends and is_loopback(options.host):
            port = urlsplit(server.url).port
            tunnel = f"{port}:127.0.0.1:{port} {socket.gethostname()}"
            print(
                f"From another machine: ssh -L {tunnel}, then open the same address",
                flush=True,
            )
        await ended.wait()
        if options.until_input_ends:
            await server.say_ended(report.decode())


def build_parser() -> Parser:
    parser = Parser(
        "watch",
        "Show the report's page of runs and evaluations while they write, at an "
        "address on this machine. It writes nothing but notes of readers.",
    )
    parser.option(
        "files",
        "folders in which runs write, dumps, evaluation samples",
        nargs="+",
        type=Path,
        metavar="PATH",
    )
    parser.option(
        "--port",
        "0 takes a free one",
        type=number(int, ge=0, le=65535),
        default=8090,
    )
    parser.option(
        "--host", "any but a loopback address needs a token", default="127.0.0.1"
    )
    parser.option(
        "--token-file",
        f"file with the token that readers must have (default: ${TOKEN_VARIABLE}, else a "
        "random one where --host needs one)",
        type=Path,
    )
    parser.option(
        "--allow-host",
        "a name, such as a proxy's, under which the page may be opened; may be repeated",
        action="append",
        default=[],
        metavar="NAME",
    )
    parser.flag("--new", "leave out what is written already")
    parser.flag("--until-input-ends", SUPPRESS)
    return parser
