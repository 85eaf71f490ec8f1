"""A small language model learns to reason, from scratch, in a quarter of an hour: `make learn`.

Demonstrations first, then reinforcement through the real loop: Atropos's API server, the
environment's `serve` command, an HTTP endpoint that serves the weights under training, and
Atropos's own trainer code. Nothing of the environment knows that the model is small.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cold_start
import reinforce
import torch
from endpoint import served
from model import CONTEXT, Policy, build_model, build_tokenizer
from results import plot, table

from reasoning_gym_environment.demo.api_server import ApiServer

TASKS = (
    "aiw,basic_arithmetic,chain_sum,family_relationships,leg_counting,number_filtering,"
    "number_sequence,products"
)
"""Tasks whose easiest level a small model can learn from a few hundred demonstrations."""

STAGES = ("untrained", "cold start", "reinforced")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What one can choose; the defaults take a quarter of an hour on two cores.

    Attributes:
        demonstrations: of each task.
        passes: over all demonstrations.
        steps: of reinforcement, each with one batch.
        items: held out of each task.
    """

    folder: Path = Path("learned")
    tasks: str = TASKS
    demonstrations: int = 400
    passes: int = 12
    steps: int = 150
    items: int = 25
    seed: int = 0


class Run:
    """One model on its way from random weights to what it has learned."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.begin = time.monotonic()
        options.folder.mkdir(parents=True)

    def say(self, text: str) -> None:
        """Print with the time since the start."""
        print(f"{time.monotonic() - self.begin:5.0f} s  {text}", flush=True)

    def env(self, **more: Any) -> list[str]:
        """The environment's settings as options, the same for every command."""
        settings = {
            "include_tasks": self.options.tasks,
            "system_prompt": "",
            "eval_levels": 0,
            "num_eval_samples_per_task": self.options.items,
            "seed": self.options.seed,
            **more,
        }
        return [f"--env.{name}={value}" for name, value in settings.items()]

    def asks(self, url: str, **more: Any) -> list[str]:
        """The options of commands that ask the endpoint."""
        server = {"server_type": "vllm", "base_url": f"{url}/v1", "model_name": "learner"}
        return [
            *self.env(
                tokenizer_name=self.options.folder / "tokenizer",
                max_token_length=CONTEXT,
                data_dumps_dir=self.options.folder / "dumps",
                use_wandb=False,
                **more,
            ),
            *(f"--openai.{name}={value}" for name, value in server.items()),
        ]

    @asynccontextmanager
    async def command(self, name: str, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run one of the environment's commands, its output in a log; it ends with the block."""
        with (self.options.folder / f"{name}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "reasoning_gym_environment", name, *options),
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()

    async def finish(self, name: str, *options: str) -> None:
        """Run a command to its end; raises RuntimeError where it fails."""
        async with self.command(name, *options) as process:
            if await process.wait():
                raise RuntimeError(f"{name} failed: see {self.options.folder / f'{name}.log'}")

    async def demonstrations(self) -> list[list[dict[str, str]]]:
        """Have demonstrations written, of questions that are not held out."""
        path = self.options.folder / "demonstrations.jsonl"
        count = ["--levels", "0", "--count", str(self.options.demonstrations)]
        await self.finish("problems", *self.env(), *count, "--demonstrations", "-o", str(path))
        return [json.loads(line)["messages"] for line in path.read_text().splitlines()]

    async def evaluate(self, url: str, stage: str) -> None:
        """Evaluate the weights as they are."""
        folder = self.options.folder / "evaluations" / stage.replace(" ", "-")
        await self.finish("evaluate", *self.asks(url, data_dir_to_save_evals=folder))
        self.say(f"evaluated: {stage}")

    async def reinforce(self, policy: Policy, url: str) -> None:
        """Train on what the environment sends, until all steps are made."""

        def report(step: int, metrics: Any) -> None:
            if step % 10 == 0 or step == 1:
                ratio, norm = metrics["mean_ratio"], metrics["grad_norm"]
                self.say(f"step {step:4}  importance ratio {ratio:.3f}  gradient {norm:.2f}")

        async with ApiServer() as api:
            config = reinforce.settings(api.url, self.options.folder, steps=self.options.steps)
            training = asyncio.create_task(
                asyncio.to_thread(reinforce.train, policy, config, report)
            )
            serve = self.asks(
                url,
                rollout_server_url=api.url,
                group_size=reinforce.GROUP_SIZE,
                complexity_mode="fixed",
                complexity_level=0,
                total_steps=self.options.steps,
                steps_per_eval=0,
                max_num_workers=32,
                max_batches_offpolicy=1,
                dump_all_rollouts=True,
            )
            async with self.command("serve", *serve) as process:
                ended = asyncio.create_task(process.wait())
                await asyncio.wait([training, ended], return_when=asyncio.FIRST_COMPLETED)
                if not training.done():
                    raise RuntimeError(f"serve ended early: see {self.options.folder}/serve.log")
                training.result()


async def learn(options: Options) -> None:
    """Make everything from nothing, and show what came of it."""
    run = Run(options)
    run.say(f"demonstrations of {options.tasks}")
    messages = await run.demonstrations()
    texts = [message["content"] for each in messages for message in each]
    tokenizer = build_tokenizer(texts, options.folder / "tokenizer")
    policy = Policy(build_model(len(tokenizer), options.seed), tokenizer)
    async with served(policy) as url:
        await run.evaluate(url, STAGES[0])
        run.say(f"cold start on {len(messages)} demonstrations")
        examples = [cold_start.encode(each, tokenizer) for each in messages]
        await asyncio.to_thread(
            cold_start.train, policy, examples, passes=options.passes, seed=options.seed
        )
        policy.model.save_pretrained(options.folder / "cold-start")
        await run.evaluate(url, STAGES[1])
        run.say("reinforcement")
        await run.reinforce(policy, url)
        policy.model.save_pretrained(options.folder / "reinforced")
        await run.evaluate(url, STAGES[2])
    evaluations = [options.folder / "evaluations" / s.replace(" ", "-") for s in STAGES]
    dumps = sorted((options.folder / "dumps").glob("*.jsonl"))
    page = options.folder / "report.html"
    await run.finish("report", *map(str, [*dumps, *evaluations]), "-o", str(page))
    plot(dumps, dict(zip(STAGES, evaluations, strict=True)), options.folder / "learning.svg")
    print(f"\n{table(dict(zip(STAGES, evaluations, strict=True)))}\n")
    run.say(f"done: {options.folder / 'learning.svg'} and {page}")


def parse(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(
        description="Train a small model from scratch, by demonstrations and reinforcement.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for name, default in vars(Options()).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    options = Options(**vars(parser.parse_args(arguments)))
    if options.folder.exists():
        parser.error(f"--folder {options.folder} exists; give another, or remove it")
    return options


if __name__ == "__main__":
    torch.set_num_threads(1)  # the other core is the environment's
    asyncio.run(learn(parse(sys.argv[1:])))
