"""`openenv`: an OpenEnv environment, for the clients of its `reasoning_gym_env`."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence

import uvicorn

from ..errors import FixableError
from ..gym.blocking import ReasoningGym
from ..problems.training import PROBLEM_LOGGER
from ..settings import EnvironmentSettings, add_settings, read_environment
from ..util.command_line import Parser, number
from ..util.outages import is_loopback

logger = logging.getLogger(__name__)

SETTINGS = (
    "include_tasks",
    "exclude_tasks",
    "task_weights",
    "task_parameters",
    "complexity_mode",
    "difficulty",
    "curriculum_target_accuracy",
    "sampling",
    "seed",
    "answer_tolerance",
    "skip_faulty_items",
    "task_processes",
    "require_containment",
)
"""The settings of `serve` that apply here."""

MAX_MESSAGE = 4 * 2**20
"""Bytes of a client's message."""


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; FixableError if it cannot start."""
    options = build_parser().parse(arguments)
    env = read_environment(options)
    try:
        from ..integrations.openenv import SharedStream, environment_app
    except ModuleNotFoundError as error:
        raise FixableError(
            f"the module {error.name} is missing: pip install 'reasoning-gym-environment[openenv]'"
        ) from error
    PROBLEM_LOGGER.setLevel(logging.WARNING)
    listening = listen(options.host, options.port)
    with listening, open_gym(env) as gym:
        shared = SharedStream(
            gym,
            env.include_tasks,
            seed=env.seed,
            group_size=options.group_size,
            **env.task_options(),
        )
        app = environment_app(gym, shared, sessions=options.sessions)
        logger.info("Listening on %s", address(options.host, listening))
        config = uvicorn.Config(
            app,
            ws_max_size=MAX_MESSAGE,
            log_config=None,
            log_level=logging.ERROR,
            access_log=False,
        )
        uvicorn.Server(config).run([listening])
    return 0


def build_parser() -> Parser:
    parser = Parser(
        prog="reasoning-gym-environment openenv",
        description="Serve an OpenEnv environment with the actions and observations of its "
        "reasoning_gym_env. A session that names no dataset gets problems of one stream that all "
        "sessions share; the options below are that stream's.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address (default: %(default)s)")
    parser.add_argument(
        "--port",
        type=number(int, ge=0, le=65535),
        default=8000,
        help="0 takes a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--sessions",
        type=number(int, ge=1),
        default=256,
        metavar="N",
        help="clients at once; one more is refused (default: %(default)s)",
    )
    parser.add_argument(
        "--group-size",
        type=number(int, ge=1),
        default=1,
        metavar="N",
        help="sessions that reset with the same seed and get the same problem; above 1, reset "
        "needs a seed (default: %(default)s)",
    )
    add_settings(parser, SETTINGS)
    return parser


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; FixableError if it cannot."""
    try:
        return socket.create_server((host, port))
    except (OSError, OverflowError) as error:
        raise FixableError(f"--host {host} --port {port}: cannot listen ({error})") from error


def address(host: str, listening: socket.socket) -> str:
    """Return the URL of a socket; warn if other machines reach it."""
    if not is_loopback(host):
        logger.warning(
            "The environment is unauthenticated and listens on %s: set --host 127.0.0.1, or let a "
            "proxy check its clients",
            host,
        )
    return f"http://{host}:{listening.getsockname()[1]}"


def open_gym(env: EnvironmentSettings) -> ReasoningGym:
    return ReasoningGym(
        processes=env.task_processes,
        answer_tolerance=env.answer_tolerance,
        skip_faulty_items=env.skip_faulty_items,
        require_containment=env.require_containment,
    )
