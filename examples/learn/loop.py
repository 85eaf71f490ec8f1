"""The real loop around the weights under training: the environment and the API of Atropos."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import reinforce
from model import CONTEXT, Policy
from reinforce import Steps

from reasoning_gym_environment.demo.trainer import ApiServer


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Runs the environment's commands with one set of settings.

    Attributes:
        folder: of all that is written.
        tokenizer: the folder of the model's.
        tasks: separated by commas.
        task_modules: the files of tasks that aren't the library's, separated by commas.
        items: held out of each task, at the default and at each of `eval_difficulties`.
        context: tokens of prompt and completion.
        program: Python's arguments that start the environment's commands.
    """

    folder: Path
    tokenizer: Path
    tasks: str
    items: int
    seed: int
    task_modules: str = ""
    eval_difficulties: str = "0"
    system_prompt: str = ""
    context: int = CONTEXT
    program: Sequence[str] = ("-m", "reasoning_gym_environment")

    def env(self, **more: Any) -> list[str]:
        """Return the environment's settings as options, the same for every command."""
        settings = {
            "include_tasks": self.tasks,
            "task_modules": self.task_modules,
            "system_prompt": self.system_prompt,
            "seed": self.seed,
            **more,
        }
        return [f"--env.{name}={value}" for name, value in settings.items()]

    def asks(self, url: str, **more: Any) -> list[str]:
        """Return the options of commands that query the endpoint."""
        return [
            *self.env(
                eval_difficulties=self.eval_difficulties,
                num_eval_samples_per_task=self.items,
                tokenizer_name=self.tokenizer,
                max_token_length=self.context,
                data_dumps_dir=self.folder / "dumps",
                use_wandb=False,
                **more,
            ),
            *self.server(url),
        ]

    def server(self, url: str, **more: Any) -> list[str]:
        """Return the options that name the endpoint."""
        settings = {
            "server_type": "vllm",
            "base_url": f"{url}/v1",
            "model_name": "learner",
            **more,
        }
        return [f"--openai.{name}={value}" for name, value in settings.items()]

    @asynccontextmanager
    async def command(
        self, name: str, *options: str
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a command during the block, with its output in a log."""
        with self.log(name).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, *self.program, name, *options),
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()

    def log(self, name: str) -> Path:
        """Return the log file of a command."""
        return self.folder / f"{name}.log"

    async def finish(
        self, name: str, *options: str, accepted: Collection[int] = (0,)
    ) -> None:
        """Run a command to its end; raise RuntimeError if its exit status is not accepted."""
        async with self.command(name, *options) as process:
            if await process.wait() not in accepted:
                raise RuntimeError(f"{name} failed: see {self.log(name)}")

    async def demonstrations(
        self, count: int, levels: str | None = None
    ) -> list[list[dict[str, str]]]:
        """Generate `count` demonstrations of each task and level, without held-out questions.

        Args:
            levels: separated by commas; None is the library's default configuration.
        """
        path = self.folder / f"demonstrations-{levels or 'default'}.jsonl"
        of_levels = ["--levels", levels] if levels else []
        options = [*self.env(), *of_levels, "--count", str(count), "--demonstrations"]
        await self.finish("problems", *options, "--force", "-o", str(path))
        return [json.loads(line)["messages"] for line in path.read_text().splitlines()]

    async def evaluate(self, url: str, folder: Path, **settings: Any) -> None:
        """Evaluate the current weights, sampled as in training; items may not fit the context."""
        options = self.asks(
            url,
            data_dir_to_save_evals=folder,
            eval_temperature=1.0,
            eval_attempts=4,
            **settings,
        )
        await self.finish("evaluate", *options, accepted=(0, 3))  # 3: some items failed

    async def reinforce(
        self,
        policy: Policy,
        url: str,
        goes_on: Callable[[dict[str, float] | None], bool],
        *,
        steps: int,
        **settings: Any,
    ) -> None:
        """Train on the environment's batches, for at most `steps` steps.

        Args:
            goes_on: called in the trainer's thread with what `reinforce.train` yields.
            settings: of the environment, for training alone.
        """

        def train(api_url: str) -> Steps:
            return reinforce.train(
                policy,
                reinforce.settings(
                    api_url, self.folder, steps=steps, context=policy.context
                ),
            )

        await self.train(train, url, goes_on, steps=steps, **settings)

    async def train(
        self,
        train: Callable[[str], Steps],
        url: str,
        goes_on: Callable[[dict[str, float] | None], bool],
        *,
        steps: int,
        **settings: Any,
    ) -> None:
        """Run a trainer and the environment against one API, until the trainer ends.

        Args:
            train: takes the API's URL, and trains on its batches; runs in a thread.
        """
        ends = threading.Event()

        def work(api_url: str) -> None:
            for metrics in train(api_url):
                if ends.is_set() or not goes_on(metrics):
                    return

        async with (
            ApiServer() as api,
            self.command("serve", *self.serves(url, api.url, steps, settings)) as serve,
        ):
            training = asyncio.create_task(asyncio.to_thread(work, api.url))
            served = asyncio.create_task(serve.wait())
            try:
                await asyncio.wait(
                    [training, served], return_when=asyncio.FIRST_COMPLETED
                )
                if serve.returncode:
                    raise RuntimeError(f"serve failed: see {self.log('serve')}")
                await training
            finally:
                ends.set()

    def serves(
        self, url: str, api_url: str, steps: int, settings: Mapping[str, Any]
    ) -> list[str]:
        """Return the options of `serve`: nearly on-policy, with every group on disk."""
        ours = {
            **self.of_training(api_url, steps),
            # Normalised, a partial credit of 0.01 would weigh as much as 1.
            "score_mode": "threshold",
            "dump_all_rollouts": True,
        }
        return self.asks(url, **{**ours, **settings})

    def of_training(self, api_url: str, steps: int) -> dict[str, Any]:
        """Return Atropos's own settings of training: nearly on-policy, without evaluations."""
        return {
            "rollout_server_url": api_url,
            "group_size": reinforce.GROUP_SIZE,
            "total_steps": steps,
            "steps_per_eval": 0,
            "max_num_workers": 32,
            "max_batches_offpolicy": 1,
        }
