"""`rewards`: scores and problems over HTTP, for trainers in any language."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import sys
from argparse import SUPPRESS, ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from ..errors import FixableError
from ..gym.asynchronous import AsyncReasoningGym
from ..gym.containment import contain
from ..problems.options import add_task_modules
from ..sandbox.pool import default_processes
from ..scoring.extraction import AnswerFormat
from ..service import ServiceSettings
from ..service.client import TOKEN_VARIABLE
from ..util.command_line import Parser, number
from ..util.files import require_place
from ..util.outages import is_loopback

logger = logging.getLogger(__name__)

LEAST_TOKEN = 16
"""Characters of a token."""


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; FixableError if it cannot start."""
    options = build_parser().parse(arguments)
    from ..service.app import serve

    names = [name for name, _ in options.contain]
    if len(names) > len(set(names)):
        raise FixableError(
            f"--contain: every NAME must be another, got {', '.join(names)}"
        )
    if options.contain:
        sys.path.append(str(Path.cwd()))  # a console script does not import from there
    token = read_token(options.token_file, TOKEN_VARIABLE, options.host)
    if options.streams is not None:
        require_place(options.streams, "--streams")
        options.streams.mkdir(parents=True, exist_ok=True)
    gym = AsyncReasoningGym(
        processes=options.processes,
        answer_format=options.answer_format,
        answer_tolerance=options.answer_tolerance or None,
        skip_faulty_items=not options.keep_faulty_items,
        require_containment=options.require_containment,
        task_modules=options.task_modules,
        task_environment=options.task_environment,
    )
    settings = ServiceSettings(
        host=options.host,
        port=options.port,
        token=token,
        queue=options.queue,
        max_body=options.max_body * 2**20,
        streams=options.streams,
        side_by_side=2 * options.processes,
        drain=options.drain,
    )
    with contextlib.ExitStack() as closing:
        contained = {
            name: closing.enter_context(
                contain(
                    path,
                    timeout=options.contain_timeout,
                    memory=options.contain_memory,
                    processes=options.processes,
                    require_containment=options.require_containment,
                )
            )
            for name, path in options.contain
        }
        asyncio.run(serve(gym, settings, contained=contained))
    return 0


def _contained(text: str) -> tuple[str, str]:
    """Read NAME=package.module:function."""
    name, separator, path = text.partition("=")
    if not separator:
        raise ArgumentTypeError(f"must be NAME=package.module:function, got {text!r}")
    return name, path


def build_parser() -> Parser:
    parser = Parser(
        "rewards",
        "Serve scores and problems over HTTP to NeMo Gym, OpenRLHF, slime or your own.",
    )
    defaults = ServiceSettings()
    parser.option("--host", "address", default=defaults.host)
    parser.option(
        "--token-file",
        f"file with the bearer token that clients must send, or with several, one a line "
        f"(default: ${TOKEN_VARIABLE}, else a random one unless --host is a loopback address)",
        type=Path,
    )
    _add_sizes(parser, defaults)
    parser.option(
        "--streams",
        "enable streams of problems and save their states here (default: disabled)",
        type=Path,
        metavar="FOLDER",
    )
    parser.option(
        "--answer-format",
        "where completions have their answer; boxed is the last \\boxed{}, which in tags-or-boxed "
        "counts where no tag opens",
        choices=get_args(AnswerFormat),
        default="tags",
    )
    add_task_modules(parser)
    _add_contained_functions(parser)
    for name, about in (
        (
            "keep-faulty-items",
            "streams also ask items that env.skip_faulty_items leaves out",
        ),
        ("require-containment", "refuse to start where the sandbox is incomplete"),
    ):
        parser.flag(f"--{name}", about)
    # Scripts of earlier versions give it; the gym says that it has no effect.
    parser.flag("--answer-tolerance", SUPPRESS)
    return parser


def _add_sizes(parser: Parser, defaults: ServiceSettings) -> None:
    for name, unit, default, least, greatest, about in (
        ("port", "PORT", defaults.port, 0, 65535, "0 takes a free one"),
        (
            "processes",
            "N",
            default_processes(),
            1,
            1024,
            "generators, and as many verifier hosts",
        ),
        (
            "queue",
            "N",
            defaults.queue,
            256,
            10**6,
            "pending completions, half per client",
        ),
        (
            "max-body",
            "MIB",
            defaults.max_body // 2**20,
            1,
            1024,
            "largest request, else 413",
        ),
        (
            "drain",
            "SECONDS",
            int(defaults.drain),
            0,
            3600,
            "time for requests after SIGTERM",
        ),
    ):
        parser.option(
            f"--{name}",
            about,
            metavar=unit,
            type=number(int, ge=least, le=greatest),
            default=default,
        )


def _add_contained_functions(parser: Parser) -> None:
    parser.option(
        "--contain",
        "score with this function at /contain/NAME; may be given again",
        type=_contained,
        action="append",
        default=[],
        metavar="NAME=MODULE:FUNCTION",
    )
    parser.option(
        "--contain-timeout",
        "deadline of a contained function's call",
        type=number(float),
        default=5.0,
        metavar="SECONDS",
    )
    parser.option(
        "--contain-memory",
        "what such a call may use",
        default="512MB",
        metavar="SIZE",
    )


def read_token(
    file: Path | None,
    variable: str,
    host: str,
    *,
    logs: bool = True,
) -> str | None:
    """Return the token from its file, else the environment, else a new one if others reach `host`.

    Raises FixableError for an unusable one. `logs` names a new one in the log.
    """
    if file is not None:
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise FixableError(
                f"--token-file {file}: cannot read it ({error})"
            ) from error
        where = f"--token-file {file}"
    elif variable in os.environ:
        where = f"${variable}"
        token = os.environ[variable].strip()
    elif is_loopback(host):
        return None
    else:
        token = secrets.token_urlsafe(24)
        if logs:
            message = (
                "Others reach %s, and no token is set: clients need the new token %s"
            )
            logger.warning(message, host, token)
        return token
    shortest = min(map(len, token.splitlines()), default=0)
    if shortest < LEAST_TOKEN:
        raise FixableError(
            f"{where}: the token must have at least {LEAST_TOKEN} characters, got {shortest}"
        )
    return token
