"""SmolLM2-135M-Instruct learns with a stock vLLM on a CPU: `make train-language-model`.

Demonstrations first, then reinforcement through Atropos's API server, the environment's `serve`
command and Atropos's own trainer code. The same command resumes an interrupted run, and continues a
finished one with more `--steps`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "learn"))

import cold_start
import reinforce
import torch
from engine import Engine, reload, serving
from learner import CHECKPOINT_EVERY, DTYPE, LEARNING_RATE, Learner, computing, register
from loop import Loop
from options import option, parser_of
from results import plot, table
from samples import samples

TASKS = "aiw,basic_arithmetic,count_primes,letter_counting,products"
"""Tasks whose easiest level has one-line questions that a small model can answer."""

SYSTEM_PROMPT = "Reply with <answer>...</answer>."
CONTEXT = 64
"""Tokens of prompt and completion; Atropos's trainer pads rows to a multiple of 64."""

ROWS = 16
"""Rows of one batch: 2 groups."""

COLD_START = {"passes": 1, "learning_rate": 2e-4, "size": 8}
THREADS = max(1, (os.cpu_count() or 2) // 2)
"""Half of the cores for the server; the trainer and the environment use the other half."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a run; the defaults take 15 minutes to an hour on two cores."""

    folder: Path = option(Path("trained"), "of all output; a run in it is resumed")
    model: Path = option(
        Path(".venv-real/model"), "folder that vLLM and transformers read"
    )
    vllm: str = option(".venv-real/bin/python", "Python interpreter that has vLLM")
    tasks: str = option(TASKS, "names of tasks, with commas between")
    demonstrations: int = option(100, "of each task")
    steps: int = option(100, "of reinforcement, in all")
    items: int = option(20, "held out of each task")
    layers: int = option(10, "that are trained, counted from the last")
    sampling: str = option(
        "uniform", "of the training problems", choices=("uniform", "signal")
    )
    seed: int = option(0, "of cold start and problems")


class Run:
    """One training run, with all of its files in one folder."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.folder = options.folder
        self.cold = self.folder / "cold-start"
        self.served = self.folder / "served"
        self.checkpoint = self.folder / "trainer.pt"
        self.steps = self.folder / "steps.jsonl"
        self.begin = self.since = self.got = time.monotonic()
        self.loop = Loop(
            folder=self.folder,
            tokenizer=options.model,
            tasks=options.tasks,
            items=options.items,
            seed=options.seed,
            system_prompt=SYSTEM_PROMPT,
            context=CONTEXT,
        )

    def say(self, text: str) -> None:
        """Print a text with the time since the start."""
        print(f"{time.monotonic() - self.begin:5.0f} s  {text}", flush=True)

    def learner(self) -> Learner:
        """Return the model from its last checkpoint, after the cold start if there is none yet."""
        layers = self.options.layers
        if not self.cold.exists():
            learner = Learner(self.options.model, layers=layers)
            count = self.options.demonstrations
            self.start_cold(
                learner, asyncio.run(self.loop.demonstrations(count, levels="0"))
            )
            return learner
        learner = Learner(self.cold, layers=layers)
        if self.checkpoint.exists():
            learner.resume(self.checkpoint)
        self.forget_steps_after(learner.step)
        self.say(f"going on after {learner.step} steps")
        return learner

    def forget_steps_after(self, step: int) -> None:
        """Remove the metrics of steps after the last checkpoint, which are repeated."""
        if self.steps.exists():
            lines = self.steps.read_text().splitlines(keepends=True)
            self.steps.write_text("".join(lines[:step]))

    def start_cold(
        self, learner: Learner, messages: Sequence[list[dict[str, str]]]
    ) -> None:
        """Train on demonstrations, and save the weights."""
        self.say(f"cold start on {len(messages)} demonstrations, computing in {DTYPE}")
        examples = [cold_start.encode(each, learner.tokenizer) for each in messages]
        with computing():
            cold_start.train(learner, examples, seed=self.options.seed, **COLD_START)
        learner.save(self.cold.with_suffix(".new"))
        self.cold.with_suffix(".new").rename(self.cold)

    async def improve(self, learner: Learner) -> None:
        """Serve the learner, evaluate it, reinforce it, and evaluate it again."""
        learner.save(self.served)
        self.say("starting vLLM")
        async with serving(
            self.options.vllm,
            self.served,
            self.folder / "vllm.log",
            dtype=DTYPE,
            context=2 * CONTEXT,
            threads=THREADS,
        ) as engine:
            if learner.step == 0:
                await self.evaluate(engine, step=0)
            if learner.step < self.options.steps:
                self.say(f"reinforcement up to step {self.options.steps}")
                await self.reinforce(learner, engine)
            await self.evaluate(engine, step=learner.step)

    async def evaluate(self, engine: Engine, *, step: int) -> None:
        """Evaluate the served weights, unless that is already done."""
        if not self.evaluated(step):
            await self.loop.evaluate(engine.url, self.evaluation(step))
            self.say(f"evaluated after {step} steps")

    def evaluated(self, step: int) -> bool:
        return (self.evaluation(step) / "metrics.json").exists()

    def evaluation(self, step: int) -> Path:
        """Return the folder of the evaluation after a step."""
        return self.folder / "evaluations" / f"step-{step}"

    async def reinforce(self, learner: Learner, engine: Engine) -> None:
        """Train on the environment's batches, from the learner's current step."""
        steps = self.options.steps

        def train(api_url: str) -> reinforce.Steps:
            config = reinforce.settings(
                api_url, self.folder.resolve(), steps=steps, context=CONTEXT + 1
            ).model_copy(
                update={
                    "lr": LEARNING_RATE,
                    "batch_size": ROWS,
                    "checkpoint_interval": CHECKPOINT_EVERY,
                }
            )
            register(config, learner.step)
            with computing():
                yield from reinforce.make_steps(
                    learner, learner.optimizer, config, start=learner.step
                )

        learner.model.train()
        self.since = self.got = time.monotonic()
        await self.loop.train(
            train,
            engine.url,
            partial(self.goes_on, learner, engine),
            steps=steps,
            complexity_mode="fixed",
            difficulty=0,
            sampling=self.options.sampling,
            task_processes=1,
        )

    def goes_on(
        self, learner: Learner, engine: Engine, metrics: dict[str, float] | None
    ) -> bool:
        """After a step, send the weights to vLLM, record the metrics, and save what is due."""
        now = time.monotonic()
        engine.require_running()
        if metrics is None:
            self.got = now
            return True
        learner.step += 1
        learner.save(self.served)
        reload(engine.url)
        if learner.step % CHECKPOINT_EVERY == 0 or learner.step == self.options.steps:
            learner.checkpoint(self.checkpoint)
        end = time.monotonic()
        seconds = {
            "waited": self.got - self.since,
            "trained": now - self.got,
            "wrote": end - now,
        }
        self.since = self.got = end
        figures = {
            name: metrics[name]
            for name in ("mean_ratio", "clipped_fraction", "grad_norm")
        }
        with self.steps.open("a") as file:
            file.write(json.dumps({"step": learner.step, **seconds, **figures}) + "\n")
        self.say(
            f"step {learner.step:4}  importance ratio {metrics['mean_ratio']:.3f}"
            f"  gradient {metrics['grad_norm']:.2f}  "
            + "  ".join(f"{what} {took:.0f} s" for what, took in seconds.items())
        )
        return True

    async def show(self) -> None:
        """Write the report and the plot, and print the table and some rollouts."""
        stages = {
            "cold start": self.evaluation(0),
            "reinforced": self.evaluation(self.options.steps),
        }
        dumps = sorted((self.folder / "dumps").glob("*.jsonl"))
        page, picture = self.folder / "report.html", self.folder / "learning.svg"
        files = map(str, [*dumps, *stages.values()])
        await self.loop.finish("report", *files, "-o", str(page), "--force")
        plot(dumps, stages, picture)
        print(f"\n{table(stages)}\n\n{samples(stages)}\n")
        self.say(f"done: {picture} and {page}")


def main(options: Options) -> None:
    """Run the missing stages, and show the results."""
    options.folder.mkdir(parents=True, exist_ok=True)
    run = Run(options)
    if not run.evaluated(options.steps):
        asyncio.run(run.improve(run.learner()))
    asyncio.run(run.show())


def parse(arguments: Sequence[str]) -> Options:
    """Parse the options."""
    parser = parser_of(
        Options, "Train a small language model by demonstrations and reinforcement."
    )
    return Options(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    # What was started ends as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    torch.set_num_threads(THREADS)
    main(parse(sys.argv[1:]))
