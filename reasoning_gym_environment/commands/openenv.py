"""`openenv`: an OpenEnv environment, for the clients of its `reasoning_gym_env`."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from ..errors import FixableError
from ..gym.blocking import ReasoningGym
from ..problems.options import TaskOptions
from ..settings import add_settings, read_environment
from ..util.command_line import Parser, number

logger = logging.getLogger(__name__)

TOKEN_VARIABLE = "REASONING_GYM_OPENENV_TOKEN"


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
    from .rewards import read_token  # slow, and not needed for --help

    host = options.host
    token = read_token(options.token_file, TOKEN_VARIABLE, host)
    family, name = (
        (socket.AF_INET6, f"[{host}]") if ":" in host else (socket.AF_INET, host)
    )
    try:
        listening = socket.create_server((host, options.port), family=family)
    except OSError as error:
        where = f"--host {host} --port {options.port}"
        raise FixableError(f"{where}: cannot listen ({error})") from error
    gym = ReasoningGym(
        processes=env.task_processes,
        answer_format=env.answer_format,
        skip_faulty_items=env.skip_faulty_items,
        require_containment=env.require_containment,
        task_modules=env.task_modules,
        task_environment=env.task_environment,
    )
    with listening, gym:
        shared = SharedStream(
            gym,
            env.include_tasks,
            seed=env.seed,
            group_size=options.group_size,
            **env.task_options(),
        )
        app = environment_app(
            gym,
            shared,
            sessions=options.sessions,
            token=token,
        )
        logger.info("Listening on http://%s:%d", name, listening.getsockname()[1])
        config = uvicorn.Config(
            app,
            ws_max_size=4 * 2**20,
            log_config=None,
            log_level=logging.ERROR,
            access_log=False,
        )
        uvicorn.Server(config).run([listening])
    return 0


def build_parser() -> Parser:
    parser = Parser(
        "openenv",
        "Serve an OpenEnv environment with the actions and observations of its "
        "reasoning_gym_env. A session that names no dataset gets problems of one stream that all "
        "sessions share; the options below are that stream's.",
    )
    parser.option(
        "--host", "any but a loopback address needs a token", default="127.0.0.1"
    )
    parser.option(
        "--port",
        "0 takes a free one",
        type=number(int, ge=0, le=65535),
        default=8000,
    )
    parser.option(
        "--token-file",
        f"file with the token that clients must have in the address (default: ${TOKEN_VARIABLE}, "
        "else a random one where --host needs one)",
        type=Path,
    )
    parser.option(
        "--sessions",
        "clients at once; one more is refused",
        type=number(int, ge=1),
        default=256,
        metavar="N",
    )
    parser.option(
        "--group-size",
        "sessions that reset with the same seed and get the same problem; above 1, reset "
        "needs a seed",
        type=number(int, ge=1),
        default=1,
        metavar="N",
    )
    environment_options = (
        "include_tasks",
        "seed",
        "answer_format",
        "skip_faulty_items",
    )
    add_settings(
        parser, *TaskOptions.model_fields, *environment_options, "require_containment"
    )
    return parser
