"""Runs every mistake of a table with the real commands, in one process: a program.

python mistake_runs.py TABLE FOLDER URL writes to standard output a JSON object: what each mistake
says, with an endpoint at the URL.
"""

import contextlib
import io
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from reasoning_gym_environment import ReasoningGym, ReasoningGymEnv, cli
from reasoning_gym_environment.demo.server import build_tokenizer
from reasoning_gym_environment.errors import FixableError

SMALL = (
    "--env.tokenizer_name TOKENIZER --env.include_tasks gcd --env.task_processes 1 "
    "--env.data_dumps_dir FOLDER/dumps --openai.model_name good"
)
"""Stands for the settings of a run of one task."""


class Impatient(ReasoningGymEnv):
    """Waits for servers less than a second, and not at all for workers: all is refused before."""

    reach_seconds = 0.1

    async def prepare(self) -> None:
        """Start no process."""


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_command(arguments: list[str]) -> str:
    """The last line of a command that fails; ours wait less for a server."""
    with (
        contextlib.redirect_stderr(io.StringIO()) as said,
        contextlib.redirect_stdout(said),
    ):
        try:
            if arguments[0] in cli.SERVING and "--env.tokenizer_name" in arguments:
                sys.argv[1:] = arguments
                Impatient.cli()
                status = 0
            else:
                status = cli.main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
    last = said.getvalue().strip().splitlines()[-1]
    return f"status {status}: {last}"


def run_python(code: str, names: dict[str, Any]) -> str:
    """The error that a snippet raises."""
    try:
        exec(code, names)
    except FixableError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def main(table: Path, folder: Path, url: str) -> None:
    os.chdir(folder)
    (folder / "file").touch()
    (folder / "empty").mkdir()
    tokenizer = build_tokenizer(folder / "tokenizer")
    said: dict[str, str] = {}
    with ReasoningGym(processes=1) as gym:
        words = {
            "FOLDER": str(folder),
            "TOKENIZER": str(tokenizer),
            "URL": url,
            "DEAD": f"http://127.0.0.1:{unused_port()}",
            "PORT": url.rpartition(":")[2],
        }
        problem = gym.problems("gcd")[0]
        for name, case in json.loads(table.read_text()).items():
            if "yaml" in case:
                (folder / "settings.yaml").write_text(case["yaml"])
            if "python" in case:
                result = run_python(case["python"], {"gym": gym, "problem": problem})
            else:
                arguments = case["run"].replace("SMALL", SMALL).split()
                for word, value in words.items():
                    arguments = [
                        argument.replace(word, value) for argument in arguments
                    ]
                result = run_command(arguments)
            for word, value in words.items():
                result = result.replace(value, word)
            said[name] = result
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3])
