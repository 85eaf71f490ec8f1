"""Run every command with fixed seeds and keep what it prints and writes, to compare two revisions.

    python benchmarks/seeded_runs.py before        # in the checkout and environment of one revision
    python benchmarks/seeded_runs.py after         # in those of the other
    diff -r before after                           # no difference: the same behavior

The commands run as a user runs them, against a simulated policy behind real HTTP and, for `serve`,
Atropos's `run-api`. What differs between two runs of one revision is replaced by a word: ids of
runs, addresses, dates, seconds. `demo` and `openenv` are left out: the first runs for a time, the
second needs another package.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import re
import shutil
import socket
import struct
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from transformers import AutoTokenizer
from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]  # made at import

from reasoning_gym_environment.demo.policy import Sample
from reasoning_gym_environment.demo.server import PolicyServer, build_tokenizer
from reasoning_gym_environment.demo.trainer import ApiServer, Trainer

TASKS = "chain_sum,gcd,letter_counting,syllogism"
GROUP_SIZE = 4
SERVED_GROUPS = 24
"""Groups of `serve` that are compared; what follows depends on when the trainer stops."""

RANDOM_WORDS = [
    (re.compile(r'"lineage": "[0-9a-f]{32}"'), "LINEAGE"),
    (
        re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
        "RUN",
    ),
    (re.compile(r"\brun [0-9a-f]{8}\b"), "run RUN"),
    (
        re.compile(
            r"\d{4}-\d\d-\d\d[T _]\d\d[:-]?\d\d([:-]?\d\d(\.\d+)?)?(\+00:00|Z)?"
        ),
        "TIME",
    ),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\d+(\.\d+)?(e-\d+)? ?(ms|s|seconds)\b"), "SECONDS"),
]
"""Patterns of what differs between two runs, and the word that replaces each."""

TIMED_KEYS = re.compile(
    r'("[\w/]*(?:seconds|time|_ms|start|end|created|saved|written)"): ?'
    r'"?-?[\d.]+(?:e-?\d+)?"?'
)
"""JSON keys whose numbers are times."""


def normalized(text: str, folder: Path) -> str:
    """Replace what differs between two runs of the same revision."""
    text = text.replace(str(folder), "FOLDER").replace(folder.name, "FOLDER")
    for pattern, word in RANDOM_WORDS:
        text = pattern.sub(word, text)
    return TIMED_KEYS.sub(r"\1: 0", text)


class SolvingPolicy:
    """A policy that reads the answer of three simple tasks from the question, and gives it often.

    The k-th completion of a question depends on the question and k alone.
    """

    def __init__(self) -> None:
        self._samples: dict[str, int] = {}

    def sample(self, question: str, n: int) -> list[Sample]:
        """Return the next `n` completions of a question."""
        first = self._samples.get(question, 0)
        self._samples[question] = first + n
        return [self._sample(question, first + index) for index in range(n)]

    def _sample(self, question: str, index: int) -> Sample:
        rng = random.Random(f"{index}/{question}")
        answer = solve(question)
        if answer is None or rng.random() < 0.4:
            answer = rng.choice(["Yes", "No", "7", str(rng.randrange(100))])
        thought = "Let me see. " * rng.randrange(1, 9)
        if rng.random() < 0.05:
            return Sample(text=f"<think>{thought}", finish_reason="length")
        return Sample(text=f"<think>{thought}</think><answer>{answer}</answer>")


def solve(question: str) -> str | None:
    """Return the answer of a question of chain_sum, gcd or letter_counting; None of others."""
    if sum_asked := re.search(r"arithmetic problem: ([\d+\- ]+) =", question):
        terms = re.findall(r"[+-]?\d+", sum_asked[1].replace(" ", ""))
        return str(sum(map(int, terms)))
    if numbers_asked := re.search(r"of these numbers: ([\d, ]+)\.", question):
        return str(math.gcd(*map(int, numbers_asked[1].split(","))))
    if letter_asked := re.search(
        r'letter "(\w)" appear in the text: "(.*)"', question, re.DOTALL
    ):
        return str(letter_asked[2].lower().count(letter_asked[1].lower()))
    return None


class Recorder:
    """Runs commands in a folder and keeps their normalized outputs in another.

    Args:
        work: where the commands run and write.
        kept: where the normalized outputs go.
    """

    def __init__(self, work: Path, kept: Path) -> None:
        self.work = work
        self._kept = kept
        self._environment = {
            **os.environ,
            "COLUMNS": "100",
            "WANDB_MODE": "offline",
            "WANDB_SILENT": "true",
            "WANDB_DIR": str(work),
        }

    async def run(self, name: str, *arguments: str) -> None:
        """Run a command to its end, and keep what it prints and its exit status."""
        print(f"{name}: {' '.join(arguments)[:80]}", flush=True)
        process = await self.start(*arguments)
        out, _ = await process.communicate()
        self.keep_text(
            f"{name}.out", f"{out.decode()}exit status {process.returncode}\n"
        )

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start a command whose log goes to the terminal's file `log`."""
        with (self.work / "log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "reasoning_gym_environment", *arguments),
                cwd=self.work,
                env=self._environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )

    def keep_text(self, name: str, text: str) -> None:
        """Keep a normalized text."""
        path = self._kept / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(normalized(text, self.work))

    def keep_files(self, name: str, pattern: str, lines: int | None = None) -> None:
        """Keep the files of a pattern, numbered since their names hold the id of the run."""
        for number, path in enumerate(sorted(self.work.glob(pattern))):
            text = path.read_text()
            if lines is not None:
                text = "\n".join(text.splitlines()[:lines])
            self.keep_text(f"{name}.{number}{path.suffix}", text)


def pairs(prefix: str, settings: dict[str, Any]) -> Iterator[str]:
    """Yield command-line options."""
    for name, value in settings.items():
        yield f"--{prefix}.{name}"
        yield str(value)


def options(url: str, tokenizer: Path, kind: str, **changes: Any) -> list[str]:
    """Return the options of a run against a policy server."""
    env = {
        "tokenizer_name": tokenizer,
        "include_tasks": TASKS,
        "task_processes": 1,
        "group_size": GROUP_SIZE,
        "max_num_workers": 1,
        "use_wandb": False,
        "wandb_name": "seeded",
        "num_eval_samples_per_task": 8,
        "dump_all_rollouts": True,
        **changes,
    }
    server = {
        "server_type": kind,
        "base_url": f"{url}/v1",
        "model_name": tokenizer,
        "api_key": "x",
    }
    return [*pairs("env", env), *pairs("openai", server)]


async def run_offline_commands(recorder: Recorder) -> None:
    """Run the commands that need no server and no rows."""
    await recorder.run("tasks", "tasks", "--json")
    await recorder.run("levels", "tasks", "--levels", "chain_sum")
    await recorder.run("init", "init", "vllm")
    await recorder.run("suites", "suite", "list")
    await recorder.run("verify", "suite", "verify", "small")
    some = ["--count", "3", "--levels", "0,2", "chain_sum", "gcd", "aiw", "coin_flip"]
    for split in ("train", "eval"):
        await recorder.run(f"problems-{split}", "problems", "--split", split, *some)
    written = ["--output", "demonstrations.jsonl"]
    await recorder.run(
        "demonstrations", "problems", "--demonstrations", *written, *some
    )
    recorder.keep_files("demonstrations", "demonstrations.jsonl")
    await recorder.run("all-problems", "problems", "--count", "1")
    proven = ["chain_sum", "syllogism", "game_of_life_halting", "countdown"]
    await recorder.run(
        "prove", "prove", "--json", "--items", "20", "--seconds", "600", *proven
    )


async def run_process_and_evaluate(
    recorder: Recorder, url: str, tokenizer: Path
) -> None:
    """Run `process` and `evaluate` with several settings."""
    modes = {
        "plain": {"server": "openai"},
        "signal": {
            "server": "vllm",
            "complexity_mode": "curriculum",
            "sampling": "signal",
        },
        "levels": {
            "server": "openai",
            "complexity_mode": "random",
            "score_mode": "binary",
        },
    }
    for name, changes in modes.items():
        kind = str(changes.pop("server"))
        settings = options(
            url,
            tokenizer,
            kind,
            total_steps=40,
            data_dumps_dir=f"dumps-{name}",
            data_path_to_save_groups=f"groups-{name}.jsonl",
            include_messages=True,
            **changes,
        )
        await recorder.run(f"process-{name}", "process", *settings)
        recorder.keep_files(f"process-{name}/dump", f"dumps-{name}/*.jsonl")
        recorder.keep_files(f"process-{name}/groups", f"groups-{name}.jsonl")
    for name, attempts in (("first", 1), ("second", 3)):
        changes = {"eval_attempts": str(attempts), "eval_difficulties": "0.5"}
        settings = options(
            url, tokenizer, "openai", data_dir_to_save_evals=f"evals-{name}", **changes
        )
        await recorder.run(f"evaluate-{name}", "evaluate", *settings)
        recorder.keep_files(f"evaluate-{name}/metrics", f"evals-{name}/**/metrics.json")
        recorder.keep_files(
            f"evaluate-{name}/samples", f"evals-{name}/**/samples*.jsonl"
        )


async def run_commands_on_rows(recorder: Recorder) -> None:
    """Run the commands that read stored rows."""
    dumps = ["dumps-plain", "dumps-signal"]
    await recorder.run(
        "show", "show", "--limit", "0", "--where", "reward:0..0.5", *dumps
    )
    await recorder.run("rescore", "rescore", "--env.score_mode", "library", *dumps)
    recorder.keep_files("rescored", "dumps-*/*.rescored.jsonl")
    for form in ("sft", "dpo", "records", "nemo-gym", "verl", "skyrl"):
        await recorder.run(
            f"export-{form}", "export", "--format", form, "-o", f"{form}.jsonl", *dumps
        )
        recorder.keep_files(f"export-{form}", f"{form}.jsonl")
    await recorder.run("compare", "compare", "evals-first", "evals-second")
    await recorder.run(
        "compare-json", "compare", "--json", "evals-first", "evals-second"
    )
    target = ["--from-evaluation", "evals-second", "--count", "4"]
    await recorder.run("from-evaluation", "problems", *target)
    await recorder.run(
        # The page itself isn't kept: its rows stand in the order in which they were finished.
        *(
            "report",
            "report",
            "-o",
            "report.html",
            *dumps,
            "evals-first",
            "evals-second",
        )
    )
    await recorder.run("prove-rows", "prove", "--rows", "verl.jsonl")


async def run_serve(recorder: Recorder, url: str, tokenizer: Path) -> None:
    """Serve a trainer for some steps with one worker, so that groups come one after another."""
    print("serve", flush=True)
    async with ApiServer() as api:
        trainer = Trainer(
            api.url,
            batch_size=2 * GROUP_SIZE,
            max_token_len=2**16,
            num_steps=2 * SERVED_GROUPS,
            checkpoint_dir=recorder.work,
            save_checkpoint_interval=4,
        )
        settings = options(
            url,
            tokenizer,
            "openai",
            rollout_server_url=api.url,
            complexity_mode="curriculum",
            sampling="signal",
            ensure_scores_are_not_same=False,
            total_steps=SERVED_GROUPS,
            steps_per_eval=0,
            use_wandb=True,
            min_items_sent_before_logging=0,
            data_dumps_dir="dumps-serve",
        )
        training = asyncio.create_task(trainer.run())
        process = await recorder.start("serve", *settings)
        await process.communicate()
        training.cancel()
    groups: list[dict[str, Any]] = []
    for path in recorder.work.glob("dumps-serve/*.jsonl"):
        groups += map(json.loads, path.read_text().splitlines())
    groups.sort(key=lambda group: int(group["number"]))
    del groups[SERVED_GROUPS:]
    for group in groups:
        group.pop("step", None)  # when the trainer moved on
    recorder.keep_text("serve/groups.jsonl", "\n".join(map(json.dumps, groups)))
    [log] = recorder.work.glob("wandb/offline-run-*/*.wandb")
    recorder.keep_text("serve/wandb-keys", "\n".join(sorted(logged_keys(log))))
    first = recorder.work.glob("env_checkpoints/*/*0.json")
    for number, path in enumerate(sorted(first)[:1]):
        recorder.keep_text(f"serve/checkpoint.{number}.json", path.read_text())


def logged_keys(log: Path) -> set[str]:
    """Return the keys in wandb's file of an offline run: records in blocks of 32 KiB."""
    block, header = 2**15, 7
    content = log.read_bytes()
    keys: set[str] = set()
    record = b""
    position = header
    while position + header <= len(content):
        rest_of_block = -position % block
        if 0 < rest_of_block < header:
            position += rest_of_block
            continue
        length, kind = struct.unpack_from("<HB", content, position + 4)
        record += content[position + header : position + header + length]
        position += header + length
        if kind in (1, 4):  # a whole record, or the last part of one
            items = Record.FromString(record).history.item
            keys |= {item.key or item.nested_key[0] for item in items}
            record = b""
    return keys


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def running(
    recorder: Recorder, *arguments: str
) -> AsyncIterator[aiohttp.ClientSession]:
    """Run a command that serves HTTP, and yield a session at its address once it answers."""
    port = free_port()
    process = await recorder.start(*arguments, "--port", str(port))
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            while process.returncode is None:
                with contextlib.suppress(aiohttp.ClientConnectorError):
                    async with session.get("/health"):
                        break
                await asyncio.sleep(0.1)
            yield session
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.communicate()


async def run_services(recorder: Recorder) -> None:
    """Ask the reward service and the watched page."""
    print("rewards", flush=True)
    texts: list[str] = []

    async def ask(session: aiohttp.ClientSession, path: str, body: Any = None) -> Any:
        request = session.get(path) if body is None else session.post(path, json=body)
        async with request as response:
            text = await response.text()
            texts.append(f"{path} {response.status} {text}")
            return (
                json.loads(text)
                if response.content_type == "application/json"
                else None
            )

    (recorder.work / "streams").mkdir()
    async with running(recorder, "rewards", "--streams", "streams") as session:
        recipe = {"task": "gcd", "seed": 4}
        completions = [
            "four",
            "<answer>3</answer>",
            "<answer>3</answer> <answer>4</answer>",
        ]
        await ask(session, "/score", {"recipe": recipe, "completions": completions})
        await ask(session, "/score", {"recipe": {"task": "none"}, "completions": ["x"]})
        stream = {
            "stream": "one",
            "count": 6,
            "options": {
                "tasks": ["chain_sum", "gcd"],
                "complexity_mode": "curriculum",
                "sampling": "signal",
                "group_size": GROUP_SIZE,
            },
        }
        for _ in range(6):
            reply = await ask(session, "/problems", stream)
            for problem in reply["problems"]:
                answer = solve(problem["question"])
                answers = [f"<answer>{answer}</answer>"] * 3 + ["<answer>0</answer>"]
                body = {
                    "stream": "one",
                    "recipe": problem["recipe"],
                    "completions": answers,
                }
                await ask(session, "/score", body)
        await ask(session, "/openapi.json")
    recorder.keep_text("rewards", "\n".join(texts))
    recorder.keep_files("streams", "streams/*.json")
    print("watch", flush=True)
    texts.clear()
    async with running(
        recorder, "watch", "dumps-plain", "dumps-signal", "evals-first"
    ) as session:
        await ask(session, "/")
    recorder.keep_text("watch", "\n".join(texts))


async def main(kept: Path, parts: Sequence[str]) -> None:
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    work = Path(tempfile.mkdtemp(dir="/tmp", prefix="seeded-"))
    recorder = Recorder(work, kept)
    tokenizer = build_tokenizer(work / "tokenizer")
    if "offline" in parts:
        await run_offline_commands(recorder)
    async with PolicyServer(
        SolvingPolicy(), AutoTokenizer.from_pretrained(tokenizer)
    ) as server:
        if "rows" in parts:
            await run_process_and_evaluate(recorder, server.url, tokenizer)
            await run_commands_on_rows(recorder)
        if "serve" in parts:
            await run_serve(recorder, server.url, tokenizer)
    if "services" in parts:
        await run_services(recorder)
    print(f"kept {sum(path.is_file() for path in kept.rglob('*'))} files in {kept}")


if __name__ == "__main__":
    PARTS = ("offline", "rows", "serve", "services")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the outputs go; replaced")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.folder.resolve(), arguments.parts))
