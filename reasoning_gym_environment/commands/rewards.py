"""`rewards`: scores and problems over HTTP, for trainers in whatever language."""

from __future__ import annotations

import asyncio
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from ..errors import FixableError
from ..gym.asynchronous import AsyncReasoningGym
from ..sandbox.pool import default_processes
from ..util.files import require_place

TOKEN_VARIABLE = "REASONING_GYM_REWARDS_TOKEN"
_SHORTEST_TOKEN = 16


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; raises FixableError where it can't begin."""
    options = parse(arguments)
    from ..service.service import ServiceSettings, serve  # heavy, and not needed for --help

    token = read_token(options.token_file)
    if options.streams is not None:
        require_place(options.streams, "--streams")
        options.streams.mkdir(parents=True, exist_ok=True)
    gym = AsyncReasoningGym(processes=options.processes, answer_tolerance=options.answer_tolerance)
    settings = ServiceSettings(
        host=options.host,
        port=options.port,
        token=token,
        queue=options.queue,
        max_body=options.max_body * 2**20,
        streams=options.streams,
        side_by_side=2 * options.processes,
    )
    asyncio.run(serve(gym, settings))
    return 0


def parse(arguments: Sequence[str]) -> Namespace:
    """Parse the options; raises SystemExit, after saying why, where one can't be."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    for name, least, most in (
        ("port", 0, 65535),
        ("processes", 1, 1024),
        ("queue", 256, 10**6),
        ("max_body", 1, 1024),
    ):
        value = getattr(options, name)
        if not least <= value <= most:
            parser.error(f"--{name.replace('_', '-')} is {value}; it goes from {least} to {most}")
    return options


def build_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="reasoning-gym-environment rewards",
        description="Serve scores and problems over HTTP: NeMo Gym, OpenRLHF, slime or your own.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=8080, help="0 takes a free one (default: %(default)s)"
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        help=f"a file with the token that clients must bear (default: ${TOKEN_VARIABLE}, if set)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=default_processes(),
        help="generators, and as many verifier hosts (default here: %(default)s)",
    )
    parser.add_argument(
        "--queue",
        type=int,
        default=4096,
        help="completions that may wait; more get 429 (default: %(default)s)",
    )
    parser.add_argument(
        "--max-body",
        type=int,
        default=4,
        metavar="MIB",
        help="largest request; more gets 413 (default: %(default)s)",
    )
    parser.add_argument(
        "--streams",
        type=Path,
        metavar="FOLDER",
        help="offer streams of problems, and keep their states here (default: no streams)",
    )
    parser.add_argument("--answer-tolerance", action="store_true", help="as env.answer_tolerance")
    return parser


def read_token(file: Path | None) -> str | None:
    """Read the token from its file, else from the environment; None where there is none.

    Raises:
        FixableError: the file can't be read, or the token is too short to be one.
    """
    if file is not None:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise FixableError(f"--token-file {file}: it can't be read ({error})") from error
        where = f"--token-file {file}"
    else:
        where = f"${TOKEN_VARIABLE}"
        if TOKEN_VARIABLE not in os.environ:
            return None
        token = os.environ[TOKEN_VARIABLE].strip()
    if len(token) < _SHORTEST_TOKEN:
        raise FixableError(
            f"{where}: the token has {len(token)} characters; at least {_SHORTEST_TOKEN} are needed"
        )
    return token
