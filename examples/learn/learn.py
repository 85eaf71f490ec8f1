"""A small language model learns to reason, from scratch, in six minutes: `make learn`.

Demonstrations first, then reinforcement through the real loop: Atropos's API server, the
environment's `serve` command, an HTTP endpoint that serves the weights under training, and
Atropos's own trainer code. The environment does not know that the model is small.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cold_start
import torch
from endpoint import served
from loop import Loop
from model import CONTEXT, Policy, build_model, build_tokenizer
from options import option, parser_of
from results import plot, table

TASKS = "aiw,course_schedule,letter_counting"
"""Tasks whose easiest level a small model begins to solve after a few hundred demonstrations."""

STAGES = ("untrained", "cold start", "reinforced")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a run; the defaults take six minutes on two cores."""

    folder: Path = option(Path("learned"), "of all output")
    tasks: str = option(TASKS, "names of tasks, with commas between")
    task_modules: str = option("", "files of more tasks, with commas between")
    demonstrations: int = option(300, "of each task")
    context: int = option(CONTEXT, "tokens of prompt and completion")
    passes: int = option(3, "over all demonstrations")
    steps: int = option(200, "of reinforcement, each with one batch")
    items: int = option(60, "held out of each task")
    seed: int = option(0, "of weights and problems")


class Run:
    """One training run, from random weights."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.folder = options.folder
        self.steps = 0
        self.begin = time.monotonic()
        self.loop = Loop(
            folder=options.folder,
            tokenizer=options.folder / "tokenizer",
            tasks=options.tasks,
            task_modules=options.task_modules,
            items=options.items,
            seed=options.seed,
            context=options.context,
        )

    def say(self, text: str) -> None:
        """Print a text with the time since the start."""
        print(f"{time.monotonic() - self.begin:5.0f} s  {text}", flush=True)

    async def evaluate(self, url: str, stage: str) -> None:
        """Evaluate the current weights."""
        await self.loop.evaluate(url, self.evaluation(stage))
        self.say(f"evaluated: {stage}")

    def evaluation(self, stage: str) -> Path:
        """Return the folder of a stage's evaluation."""
        return self.folder / "evaluations" / stage.replace(" ", "-")

    def goes_on(self, metrics: dict[str, float] | None) -> bool:
        """Print the metrics of a step, and return whether training continues."""
        if metrics is not None:
            self.steps += 1
            if self.steps % 10 == 0 or self.steps == 1:
                ratio, norm = metrics["mean_ratio"], metrics["grad_norm"]
                self.say(
                    f"step {self.steps:4}  importance ratio {ratio:.3f}  gradient {norm:.2f}"
                )
        return True

    async def show(self) -> None:
        """Write the report and the plot, and print the table."""
        stages = {stage: self.evaluation(stage) for stage in STAGES}
        dumps = sorted((self.folder / "dumps").glob("*.jsonl"))
        page, picture = self.folder / "report.html", self.folder / "learning.svg"
        await self.loop.finish(
            "report",
            *map(str, [*dumps, *stages.values()]),
            "-o",
            str(page),
            "--force",
        )
        plot(dumps, stages, picture)
        print(f"\n{table(stages)}\n")
        self.say(f"done: {picture} and {page}")


async def learn(options: Options) -> None:
    """Run all stages, and show the results."""
    options.folder.mkdir(parents=True)
    run = Run(options)
    run.say(f"demonstrations of {options.tasks}")
    messages = await run.loop.demonstrations(options.demonstrations, levels="0")
    texts = [message["content"] for each in messages for message in each]
    tokenizer = build_tokenizer(texts, options.folder / "tokenizer")
    model = build_model(len(tokenizer), options.seed, options.context)
    policy = Policy(model, tokenizer, options.context)
    async with served(policy) as endpoint:
        await run.evaluate(endpoint.url, STAGES[0])
        run.say(f"cold start on {len(messages)} demonstrations")
        examples = [cold_start.encode(each, tokenizer) for each in messages]
        await asyncio.to_thread(
            cold_start.train, policy, examples, passes=options.passes, seed=options.seed
        )
        policy.model.save_pretrained(options.folder / "cold-start")
        await run.evaluate(endpoint.url, STAGES[1])
        run.say("reinforcement")
        await run.loop.reinforce(
            policy,
            endpoint.url,
            run.goes_on,
            steps=options.steps,
            complexity_mode="fixed",
            difficulty=0,
            sampling="signal",
        )
        policy.model.save_pretrained(options.folder / "reinforced")
        await run.evaluate(endpoint.url, STAGES[2])
    await run.show()


def parse(arguments: Sequence[str]) -> Options:
    """Parse the options; raise SystemExit if the folder exists."""
    parser = parser_of(
        Options,
        "Train a small model from scratch, by demonstrations and reinforcement.",
    )
    options = Options(**vars(parser.parse_args(arguments)))
    if options.folder.exists():
        parser.error(f"--folder {options.folder} exists; give another, or remove it")
    return options


if __name__ == "__main__":
    # What was started ends as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    torch.set_num_threads(1)  # the other core is the environment's
    asyncio.run(learn(parse(sys.argv[1:])))
