"""Real parts for tests of the environment: a policy behind HTTP, environments, commands."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import wandb
from atroposlib.envs.base import APIServerConfig
from forked_commands import CommandServer
from process_tree import descendants, is_alive, survivors
from trainer_api import until, weight_of_a_newcomer
from worker_stock import WorkerStock

from reasoning_gym_environment import ReasoningGymEnv, ReasoningGymEnvConfig
from reasoning_gym_environment.demo.policy import Policy, Sample
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.sandbox.worker_groups import StartWorker


class Script:
    """A policy that gives its samples in turn; a test may change them between groups."""

    def __init__(self, *samples: Sample | str) -> None:
        self.play(*samples)

    def play(self, *samples: Sample | str) -> None:
        """Begin anew with these samples."""
        self._samples = [Sample(text=s) if isinstance(s, str) else s for s in samples]
        self._given = 0

    def sample(self, question: str, n: int) -> list[Sample]:
        turns = range(self._given, self._given + n)
        self._given += n
        return [self._samples[turn % len(self._samples)] for turn in turns]


class KnowsAll:
    """A policy that knows the answers it was taught, and answers 'no idea' to the rest."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}

    def sample(self, question: str, n: int) -> list[Sample]:
        answer = self.answers.get(question, "no idea")
        return [Sample(text=f"<think>hm</think><answer>{answer}</answer>")] * n


class Bench:
    """Makes environments and commands that use the demo's tokenizer and few tasks.

    Args:
        start_worker: where the environments' worker processes come from.
        commands: where commands are forked from.

    Attributes:
        folder: where everything that is written goes.
    """

    def __init__(
        self,
        tokenizer: Any,
        folder: Path,
        start_worker: StartWorker,
        commands: CommandServer,
    ) -> None:
        self.folder = folder
        self._commands = commands
        self._start_worker = start_worker
        self._tokenizer = tokenizer
        self._tokenizer_folder = tokenizer.name_or_path

    def settings(self, **changes: Any) -> dict[str, Any]:
        return {
            "tokenizer_name": self._tokenizer_folder,
            "include_tasks": "gcd",
            "task_processes": 1,
            "num_eval_samples_per_task": 1,
            "group_size": 4,
            "max_num_workers": 2,
            "steps_per_eval": 0,
            "use_wandb": False,
            "wandb_name": "env",
            "data_dumps_dir": str(self.folder / "dumps"),
            **changes,
        }

    def server(self, url: str, kind: str = "openai", **changes: Any) -> dict[str, Any]:
        return {
            "server_type": kind,
            "base_url": url if kind == "trl" else f"{url}/v1",
            "model_name": self._tokenizer_folder,
            "api_key": "x",
            **changes,
        }

    @asynccontextmanager
    async def unprepared(
        self,
        url: str,
        kind: str = "openai",
        of: type[ReasoningGymEnv] = ReasoningGymEnv,
        others: Sequence[tuple[str, str]] = (),
        **changes: Any,
    ) -> AsyncIterator[ReasoningGymEnv]:
        """An environment that is not yet set up, closed afterwards.

        `others` are the URLs and types of more servers.
        """
        config = ReasoningGymEnvConfig(**self.settings(**changes))
        listed = [(url, kind), *others]
        servers = [APIServerConfig(**self.server(*each)) for each in listed]
        env = of(config, servers, start_worker=self._start_worker)
        try:
            yield env
        finally:
            await env.close()

    @asynccontextmanager
    async def environment(
        self, url: str, kind: str = "openai", **changes: Any
    ) -> AsyncIterator[ReasoningGymEnv]:
        """An environment that is set up, and closed afterwards."""
        async with self.unprepared(url, kind, **changes) as env:
            await env.setup()
            yield env

    @asynccontextmanager
    async def playing(
        self, policy: Policy, kind: str = "openai", **changes: Any
    ) -> AsyncIterator[ReasoningGymEnv]:
        """An environment that is set up, and asks a policy."""
        async with (
            PolicyServer(policy, self._tokenizer) as server,
            self.environment(server.url, kind, **changes) as env,
        ):
            yield env

    def options(self, url: str, **changes: Any) -> list[str]:
        """Command-line options for a policy server at `url`."""
        env, server = self.settings(**changes), self.server(url)
        return [
            part
            for prefix, values in (("env", env), ("openai", server))
            for name, value in values.items()
            for part in (f"--{prefix}.{name}", str(value))
        ]

    def file(self, url: str, **changes: Any) -> list[str]:
        """The option of a file with the same settings, as a training has them."""
        path = self.folder / "training.yaml"
        sections = {"env": self.settings(**changes), "openai": self.server(url)}
        path.write_text(json.dumps(sections))
        return ["--config", str(path)]

    def command(self, *arguments: str, within: str = "") -> "Command":
        """The package's command, forked from a process that has imported it."""
        command = self.program(*arguments, within=within)
        command.server = self._commands
        return command

    def started_command(self, *arguments: str, within: str = "") -> "Command":
        """The same in a new interpreter, as a user starts it."""
        return self.program(
            sys.executable, "-m", "reasoning_gym_environment", *arguments, within=within
        )

    def program(self, *words: str, within: str = "") -> "Command":
        """A program run in a folder below the bench's own."""
        folder = self.folder / within
        folder.mkdir(exist_ok=True)
        return Command(words, folder)


class Command:
    """A program run in a folder, killed at the end of its `async with` if it still runs.

    Attributes:
        log, out: what it writes to standard error and to standard output.
        environment: its variables.
        server: what forks it, if it is the package's command; else it is started.
    """

    server: CommandServer | None = None
    process: Any

    def __init__(self, program: Sequence[str], folder: Path) -> None:
        self._program = program
        self._folder = folder
        self.log = folder / "log.txt"
        self.out = folder / "out.txt"
        self.environment = {
            **os.environ,
            "WANDB_MODE": "offline",
            "WANDB_SILENT": "true",
        }

    async def __aenter__(self) -> "Command":
        if self.server is not None:
            self.process = await self.server.start(
                self._program,
                folder=self._folder,
                environment=self.environment,
                out=self.out,
                log=self.log,
            )
            return self
        with self.log.open("wb") as log, self.out.open("wb") as out:
            self.process = await asyncio.create_subprocess_exec(
                *self._program,
                cwd=self._folder,
                stdout=out,
                stderr=log,
                env=self.environment,
            )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()

    async def until_logged(self, text: str) -> None:
        """Wait until the text is in the log; fails when the program ends before that."""
        await self.until(lambda: text in self.said())

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until it holds; fails when the program ends before that."""

        def holds() -> object:
            assert self.process.returncode is None, self.said()
            return condition()

        await until(holds)

    async def exit_code(self) -> int:
        status: int = await asyncio.wait_for(self.process.wait(), timeout=300)
        return status

    def processes(self) -> set[int]:
        """What runs below `serve` while it works, where /proc tells."""
        if sys.platform != "linux":
            return set()
        found = {*filter(is_alive, descendants(self.process.pid))}
        assert len(found) >= 2
        return found

    async def end(self, number: signal.Signals, api_url: str) -> None:
        """End `serve` by a signal: it must disconnect and leave no process behind."""
        processes = self.processes()
        self.process.send_signal(number)
        assert await self.exit_code() == 128 + number, self.said()
        assert await weight_of_a_newcomer(api_url) == 1.0
        assert await survivors(processes) == set()
        assert "Traceback" not in self.said()

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def printed(self) -> str:
        return self.out.read_text(errors="replace")


@pytest.fixture
def bench(
    tokenizer: Any, tmp_path: Path, stock: WorkerStock, commands: CommandServer
) -> Bench:
    return Bench(tokenizer, tmp_path, stock.lend, commands)


@pytest.fixture(scope="module")
def module_bench(
    tokenizer: Any,
    tmp_path_factory: pytest.TempPathFactory,
    stock: WorkerStock,
    commands: CommandServer,
) -> Bench:
    return Bench(tokenizer, tmp_path_factory.mktemp("bench"), stock.lend, commands)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def commands() -> AsyncIterator[CommandServer]:
    server = CommandServer()
    yield server
    await server.close()


@pytest.fixture
def wandb_of_a_launcher(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands find this process's wandb service and use it, as those that a trainer launches."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    wandb.init(project="launcher", dir=tmp_path_factory.mktemp("launcher")).finish()
    assert "WANDB_SERVICE" in os.environ


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture(scope="module")
def module_script() -> Script:
    return Script()


@pytest.fixture
def knows_all() -> KnowsAll:
    return KnowsAll()
