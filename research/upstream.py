"""Train one small model by this environment and by the one it replaces, and compare the gains.

    python research/upstream.py FOLDER [--rollouts 24000] [--steps 60] [--seeds 8]

Needs `pip install '.[learn]'`, and the network for upstream's module. The same command goes on
with the missing runs, and prints the table. `--only 2/0` and `2/1` share the runs between two
processes. `upstream.md` says what is compared.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import shutil
import signal
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "learn"))

import endpoint
import torch
from aiohttp import web
from learning import NEVER, Experiment, measured, start, stored_groups
from loop import Loop
from model import Policy
from upstream_results import ALL_ITEMS, SOUND_ITEMS, UPSTREAM, table

from reasoning_gym_environment.records import Signal

COMMIT = "623dadc5cd88da741758a8b8f90f4f7402de2ee3"
"""Of 20 February 2026, the last that changed the module; the repository is archived since July."""

SHA256 = "f10a6560c39a120a6d6cddbcb1c298fca9e570e72a6fa6b15d5eb48cd27eeb82"
ADDRESS = (
    f"https://raw.githubusercontent.com/NousResearch/atropos/{COMMIT}/environments/"
    "reasoning_gym_environment/reasoning_gym_environment.py"
)

PARTLY_FAULTY = "aiw,family_relationships,letter_counting,syllogism"
WITHOUT_FAULTS = "binary_alternation,count_bits,gcd,isomorphic_strings"
TASKS = f"{PARTLY_FAULTY},{WITHOUT_FAULTS}"
"""Chosen before the first run: items of the first four are partly faulty, none of the others. The
latter fit the model's context, and the cold start solves some of their items."""

OURS = {"score_mode": "library"}
"""Upstream's rewards."""

ARMS: dict[str, dict[str, Any]] = {
    UPSTREAM: {},
    "ours": OURS,
    "ours, signal": OURS | {"sampling": "signal"},
    "ours, faulty items kept": OURS | {"skip_faulty_items": False},
}
"""Settings of the environment in training, by name."""

SKIPS_FAULTY = {SOUND_ITEMS: True, ALL_ITEMS: False}

UPSTREAM_SERVE = Path(__file__).with_name("upstream_serve.py")


@dataclass(frozen=True, kw_only=True)
class Comparison(Experiment):
    """Settings that all runs share.

    Attributes:
        steps: of the trainer, after which the weights are measured besides.
    """

    steps: int

    @property
    def module(self) -> Path:
        """Upstream's file."""
        return self.folder / "upstream" / "reasoning_gym_environment.py"

    def loop(self, folder: Path, seed: int, constants: Sequence[str] = ()) -> Loop:
        whole = super().loop(folder, seed, constants)
        return replace(whole, eval_difficulties="")

    def upstream_loop(self, folder: Path, seed: int) -> Loop:
        """Return a loop whose `serve` is upstream's."""
        program = (
            str(UPSTREAM_SERVE),
            str(self.module),
            self.tasks,
            str(folder / "groups.txt"),
        )
        ours = self.loop(folder, seed)
        return UpstreamLoop(**{**vars(ours), "program": program})


class UpstreamLoop(Loop):
    """The loop with upstream's `serve`, whose settings have other names and meanings."""

    def serves(
        self, url: str, api_url: str, steps: int, settings: Mapping[str, Any]
    ) -> list[str]:
        env = {
            "tokenizer_name": self.tokenizer,
            "max_token_length": self.context,
            "use_wandb": False,
            **self.of_training(api_url, steps),
            # Its seeds count up from here: no two runs meet.
            "seed": 1_000_000 * (1 + self.seed),
        }
        return [
            *(f"--env.{name}={value}" for name, value in env.items()),
            *self.server(url, tokenizer_name=self.tokenizer),
        ]


class Endpoint(endpoint.Endpoint):
    """Answers also `/generate`, by which atroposlib 0.4.0 asks vLLM."""

    def app(self) -> web.Application:
        app = super().app()
        app.add_routes([web.post("/generate", self.generate)])
        return app

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        samples = await self.samples(body["prompt"]["prompt_token_ids"], body)
        end = self.policy.tokenizer.eos_token_id
        whole = [sample.tokens[-1:] == [end] for sample in samples]
        return web.json_response(
            {
                "text": [""] * len(samples),
                "finish_reasons": ["stop" if each else "length" for each in whole],
                "logprobs": [
                    [
                        [{token: logprob}]
                        for token, logprob in zip(*sample[:2], strict=True)
                    ]
                    for sample in samples
                ],
            }
        )


class Budget:
    """Counts steps and rollouts, and saves the weights after a number of steps and at the end."""

    def __init__(
        self,
        comparison: Comparison,
        policy: Policy,
        served: endpoint.Endpoint,
        folder: Path,
    ) -> None:
        self.steps = 0
        self.saved: dict[str, Path] = {}
        self._comparison, self._policy = comparison, policy
        self._served, self._folder = served, folder

    def goes_on(self, metrics: dict[str, float] | None) -> bool:
        """Return whether rollouts are left, after a step of the trainer or while it waits."""
        self.steps += metrics is not None
        if metrics is not None and self.steps == self._comparison.steps:
            self.save("steps")
        goes_on = self._served.sampled < self._comparison.rollouts
        if not goes_on:
            self.save("rollouts")
        return goes_on

    def save(self, when: str) -> None:
        self.saved[when] = self._folder / f"weights-{when}"
        self._policy.model.save_pretrained(self.saved[when])


def fetch(module: Path) -> None:
    """Write upstream's module; SystemExit if it is not the one that was read."""
    if not module.exists():
        module.parent.mkdir(parents=True, exist_ok=True)
        with urllib.request.urlopen(ADDRESS) as reply:
            module.write_bytes(reply.read())
    found = hashlib.sha256(module.read_bytes()).hexdigest()
    if found != SHA256:
        raise SystemExit(f"error: {module} has the sha256 {found}, not {SHA256}")


async def run(
    comparison: Comparison, arm: str, seed: int, weights: Path
) -> dict[str, Any]:
    """Train one arm from the common weights, and evaluate what it learned."""
    folder = comparison.folder / "runs" / f"{arm}-{seed}".replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(seed)
    make_loop = comparison.upstream_loop if arm == UPSTREAM else comparison.loop
    policy = comparison.policy(weights)
    async with endpoint.served(policy, Endpoint) as served:
        budget = Budget(comparison, policy, served, folder)
        await make_loop(folder, seed).reinforce(
            policy, served.url, budget.goes_on, steps=NEVER, **ARMS[arm]
        )
    solved = {
        when: await evaluate(comparison, saved, folder / f"evaluation-{when}")
        for when, saved in budget.saved.items()
    }
    groups = outcomes(folder)
    return {
        "arm": arm,
        "seed": seed,
        "steps": budget.steps,
        "groups": len(groups),
        "mixed": groups.count("mixed"),
        "interrupted": groups.count("interrupted"),
        "solved": solved,
    }


async def evaluate(
    comparison: Comparison, weights: Path, folder: Path
) -> dict[str, Any]:
    """Return the solved shares of held-out items, by measure and by task; the same for all runs."""
    found = {}
    for measure, skips in SKIPS_FAULTY.items():
        work = folder / measure.replace(" ", "-")
        work.mkdir(parents=True)
        torch.manual_seed(0)
        loop = comparison.loop(work, seed=0)
        async with endpoint.served(comparison.policy(weights)) as served:
            await loop.evaluate(
                served.url, work / "evaluation", skip_faulty_items=skips
            )
        shares = measured(work / "evaluation")
        found[measure] = {
            "all": shares["solved"]["default"],
            **shares["tasks"]["default"],
        }
    return found


def outcomes(folder: Path) -> list[str]:
    """Return what became of each group of a run: mixed, equal, lost or interrupted."""
    log = folder / "groups.txt"
    if log.exists():  # upstream's
        return log.read_text().split()
    stored = [
        "mixed" if group.signal is Signal.MIXED else "equal"
        for group in stored_groups(folder)
    ]
    counts = re.findall(r"(\d+) interrupted", (folder / "serve.log").read_text())
    return stored + ["interrupted"] * int(counts[-1] if counts else 0)


async def main(
    comparison: Comparison, seeds: int, arms: Sequence[str], part: int, parts: int
) -> None:
    """Make the runs that have no result yet, seed by seed, then print the table."""
    fetch(comparison.module)
    weights = await start(comparison)
    begin = comparison.folder / "start" / "solved.json"
    if not begin.exists():
        found = await evaluate(
            comparison, weights, comparison.folder / "start" / "held-out"
        )
        begin.write_text(json.dumps(found))
    for seed in range(1, seeds + 1):
        for arm in arms if seed % parts == part else ():
            path = comparison.folder / f"{arm}-{seed}.json"
            if not path.exists():
                print(f"{arm}, seed {seed}", flush=True)
                path.write_text(json.dumps(await run(comparison, arm, seed, weights)))
    results = [
        json.loads(path.read_text())
        for path in sorted(comparison.folder.glob("*-*.json"))
    ]
    print(table(results, json.loads(begin.read_text()), arms))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rollouts", type=int, default=24000, help="of each run")
    parser.add_argument(
        "--steps", type=int, default=60, help="at which arms are compared"
    )
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument(
        "--arms", default="; ".join(ARMS), help="separated by semicolons"
    )
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--items", type=int, default=50, help="held out of each task")
    parser.add_argument("--demonstrations", type=int, default=300)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument(
        "--only", default="1/0", help="seeds whose remainder by PARTS is PART"
    )
    options = vars(parser.parse_args())
    arms = [arm.strip() for arm in options.pop("arms").split(";")]
    if unknown := set(arms) - set(ARMS):
        parser.error(
            f"no such arm: {', '.join(sorted(unknown))}; there are {'; '.join(ARMS)}"
        )
    parts, part = map(int, options.pop("only").split("/"))
    seeds = options.pop("seeds")
    # What was started ends as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    torch.set_num_threads(1)  # the other core is the environment's
    asyncio.run(main(Comparison(weights=0, **options), seeds, arms, part, parts))
