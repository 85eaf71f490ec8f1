"""Runs every mistake of a table with the real commands, in one process: a program.

python mistake_runs.py TABLE FOLDER writes to standard output a JSON object: what each mistake says.
"""

import contextlib
import io
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from reasoning_gym_environment import FixableError, ReasoningGym, ReasoningGymEnv, cli
from reasoning_gym_environment.demo.server import build_tokenizer

REPLIES: dict[str, tuple[int, str]] = {
    "key": (401, '{"error": {"message": "Incorrect API key provided: sk-***.", "code": 401}}'),
    "model": (404, '{"object": "error", "message": "The model `good` does not exist."}'),
    "quota": (
        429,
        '{"error": {"message": "You exceeded your current quota, please check your plan and '
        'billing details.", "type": "insufficient_quota"}}',
    ),
    "context": (
        400,
        '{"error": {"message": "This model\'s maximum context length is 4096 tokens."}}',
    ),
    "page": (200, "<!doctype html><title>A router's log-in</title>"),
    "text": (200, '{"choices": [{"text": "ok", "message": {"content": "ok"}}]}'),
    "v1": (404, '{"detail": "Not Found"}'),
}
"""Status and body of every reply, by the first part of the path."""


SMALL = (
    "--env.tokenizer_name TOKENIZER --env.include_tasks gcd --env.task_processes 1 "
    "--env.data_dumps_dir FOLDER/dumps --openai.model_name good"
)
"""Stands for the settings of a run of one task."""


class Endpoint(BaseHTTPRequestHandler):
    """Answers all requests below a path alike."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, body = REPLIES.get(self.path.split("/")[1], REPLIES["v1"])
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class Impatient(ReasoningGymEnv):
    """Waits for servers less than a second."""

    reach_seconds = 0.1


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The endpoint's URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_command(arguments: list[str]) -> str:
    """The last line of a command that fails; ours wait less for a server."""
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(said):
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


def main(table: Path, folder: Path) -> None:
    os.chdir(folder)
    (folder / "file").touch()
    (folder / "empty").mkdir()
    tokenizer = build_tokenizer(folder / "tokenizer")
    said: dict[str, str] = {}
    with serving() as url, ReasoningGym(processes=1) as gym:
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
                    arguments = [argument.replace(word, value) for argument in arguments]
                result = run_command(arguments)
            for word, value in words.items():
                result = result.replace(value, word)
            said[name] = result
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
