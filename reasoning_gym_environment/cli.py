"""The command line: one command a module."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from .errors import ConfigurationError, did_you_mean
from .util.logs import configure_logging, exit_status

SERVING = {
    "serve": "feed a trainer through the Atropos API",
    "process": "collect groups into files, without a trainer",
    "evaluate": "run the fixed evaluation set",
}
"""The commands that use an inference server; each other command is a module of `commands`."""

COMMANDS = SERVING | {
    "demo": "run everything for half a minute with a simulated policy",
    "init": "write a commented configuration to start from",
    "rewards": "serve scores and problems over HTTP to any trainer",
    "openenv": "serve an OpenEnv environment",
    "tasks": "list all tasks and which are used, or the levels of one",
    "problems": "write problems of chosen tasks and levels, or demonstrations",
    "prove": "prove tasks, the library's or your own, or check rows",
    "rescore": "score stored rollouts again under other settings, without inference",
    "show": "print stored rollouts for people",
    "export": "write stored rollouts as training data",
    "compare": "compare two evaluation results, paired by item",
    "suite": "fixed evaluation sets: list, verify, leaderboard",
    "report": "make an HTML page from dumps and evaluation results",
    "watch": "show that page of runs while they write",
}


NEXT_STEP = (
    "Type a command after the program's name: `serve` to feed a trainer, `demo` to see everything "
    "run.\n"
)
"""What to type, for a call without a command, which starts nothing."""


def usage() -> str:
    """Return the help of the program."""
    lines = [f"  {name:10} {about}" for name, about in COMMANDS.items()]
    serving_lines = lines[: len(SERVING)]
    other_lines = lines[len(SERVING) :]
    return """\
usage: reasoning-gym-environment COMMAND [options]

Train language models on reasoning-gym's tasks, with Atropos or any trainer.

commands that use an inference server (for options: COMMAND --help):
{}

commands that need no server:
{}

Settings are options, --env.NAME VALUE (the environment) and --openai.NAME VALUE
(the inference server), or come from a file: --config FILE.yaml.
--version prints the version.
""".format("\n".join(serving_lines), "\n".join(other_lines))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code.

    The code is 2 for errors that the user can fix, and 75 if the same command may succeed later.
    A closed pipe, as with `| head`, is a success.
    """
    words = sys.argv[1:] if arguments is None else arguments
    try:
        code = exit_status(lambda: _main(words))
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter's flush at the exit would fail at the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _main(arguments: Sequence[str]) -> int:
    if not arguments:
        print(NEXT_STEP)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if arguments else 2
    if arguments[0] in ("--version", "version"):
        from . import __version__  # slow

        print(f"reasoning-gym-environment {__version__}")
        return 0
    if arguments[0] not in COMMANDS:
        command_list = f"the commands are {', '.join(COMMANDS)}"
        hint = did_you_mean(arguments[0], COMMANDS, otherwise=command_list, most=1)
        raise ConfigurationError(f"unknown command {arguments[0]!r}; {hint}")
    configure_logging()
    name, *options = arguments
    try:
        if name not in SERVING:  # imports no other command's code
            return int(
                importlib.import_module(f".commands.{name}", __package__).main(options)
            )
        from .atropos import launch

        return launch.run(arguments, _environment)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _environment() -> type:
    from .reasoning_gym_environment import ReasoningGymEnv  # slow, and after all checks

    return ReasoningGymEnv
