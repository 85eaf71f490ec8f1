"""Groups per second of the environment, its event loop's stalls, its processor time and memory.

The environment runs in process against an inference server that answers at once, 64 groups
under way, with its evaluation set made before. Another environment, such as upstream's, runs in
turn with ours, each run in a process of its own.

    python benchmarks/throughput.py --rounds 5
    python benchmarks/throughput.py --rounds 5 --environment FILE.py:ClassName
    python benchmarks/throughput.py --long
    python benchmarks/throughput.py --limit

`--limit` measures the same recipes generated and the same answers scored in a bare loop over the
same number of processes, without an event loop, a tokenizer, HTTP or dumps.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import logging
import pickle
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atroposlib.envs.base import APIServerConfig
from atroposlib.envs.server_handling.server_baseline import APIServer
from atroposlib.envs.server_handling.server_harness import create_chat_completion
from measure import LoopMonitor, ProcessorTime, memory_megabytes
from rounds import in_turn, show
from transformers import AutoTokenizer

from reasoning_gym_environment import ReasoningGymEnv
from reasoning_gym_environment.demo.server import build_tokenizer
from reasoning_gym_environment.inference.dialects import GenerationRequest, TextSample
from reasoning_gym_environment.inference.finish_reasons import read_ending
from reasoning_gym_environment.records import Problem, Recipe
from reasoning_gym_environment.sandbox.pool import default_processes
from reasoning_gym_environment.scoring.extraction import extract_answer

GROUP_SIZE = 8
IN_FLIGHT = 64
THOUGHT = "<think>" + "I try one thing after another. " * 12 + "</think>"


def completion_text(rng: random.Random) -> str:
    """Write a reply like a weak policy's: mostly one short answer, now and then none."""
    if rng.random() < 0.1:
        return THOUGHT
    return f"{THOUGHT}<answer>{rng.randrange(100)}</answer>"


class InstantServer(APIServer):
    """An inference server without inference, for every way Atropos has of asking."""

    delay = 0.0
    tokenizer: Any = None
    asked: list[list[str]]

    def __init__(self, config: APIServerConfig, reasoning_config: Any = None) -> None:
        super().__init__(config, reasoning_config=reasoning_config)
        self._rng = random.Random(0)

    async def check_server_status_task(self, chat_completion: bool = True) -> None:
        self.server_healthy = True

    async def _texts(self, n: int) -> list[str]:
        await asyncio.sleep(self.delay)
        return [completion_text(self._rng) for _ in range(n)]

    async def _chat_completion_wrapper(self, **request: Any) -> Any:
        return create_chat_completion(await self._texts(request["n"]), n=request["n"])

    async def _completion_wrapper(self, **request: Any) -> Any:
        raise NotImplementedError("nothing measured here asks for plain completions")

    async def _tokens_and_logprobs_completion_wrapper(self, **request: Any) -> Any:
        outputs = [self.tokenizer.encode(t) for t in await self._texts(request["n"])]
        logprobs = [[-1.0] * len(tokens) for tokens in outputs]
        return request["input_ids"], outputs, logprobs, ["stop"] * len(outputs)


OURS = "this environment"
LONG = 20_000
"""Groups of the run that watches the memory."""


@dataclass
class Run:
    """What one environment did."""

    setup: float = 0.0
    seconds: float = 0.0
    missing: int = 0
    jobs: list[tuple[Recipe, list[str]]] = field(default_factory=list)
    monitor: LoopMonitor = field(default_factory=LoopMonitor)
    spent: ProcessorTime = field(default_factory=ProcessorTime)

    def numbers(self, groups: int) -> dict[str, float]:
        return {
            "groups/s": groups / self.seconds,
            "setup, s": self.setup,
            "longest stall, ms": 1000 * max(self.monitor.lateness),
            "event loop, ms a group": 1000 * self.spent.loop / groups,
            "with its threads": 1000 * self.spent.process / groups,
        }


def load_class(spec: str | None) -> type[Any]:
    """Load the environment class of `FILE.py:ClassName`; ours where none is given."""
    if spec is None:
        return ReasoningGymEnv
    path, _, name = spec.rpartition(":")
    module_spec = importlib.util.spec_from_file_location("measured_environment", path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module
    module_spec.loader.exec_module(module)
    return getattr(module, name)  # type: ignore[no-any-return]  # the caller names a class


def build(cls: type[Any], tokenizer: Path, options: argparse.Namespace) -> Any:
    measured: Any = (
        InstantEnv
        if cls is ReasoningGymEnv
        else type("M", (cls,), {"server_cls": InstantServer})
    )
    InstantServer.delay = options.delay
    InstantServer.tokenizer = AutoTokenizer.from_pretrained(tokenizer)
    settings = {
        "tokenizer_name": str(tokenizer),
        "group_size": GROUP_SIZE,
        "use_wandb": False,
        "max_token_length": 16384,
        "num_eval_samples_per_task": 1,
        "dump_rollouts": True,
        "dump_failed_rollouts": True,
    }
    if cls is ReasoningGymEnv:
        settings["data_dumps_dir"] = tempfile.mkdtemp()
    else:
        settings["complexity_mode"] = None
    config = measured.config_init()[0].model_copy(update=settings)
    server = APIServerConfig(model_name="instant", base_url=None, api_key="x")
    return measured(config, [server], slurm=False)


class InstantEnv(ReasoningGymEnv):
    """This environment, with inference clients that answer as `InstantServer` does."""

    def _make_run(self) -> Any:
        run = super()._make_run()
        rng = random.Random(0)

        async def sample(request: GenerationRequest) -> list[TextSample]:
            await asyncio.sleep(InstantServer.delay)
            return [
                TextSample(completion_text(rng), None, read_ending("stop"))
                for _ in range(request.n)
            ]

        async def require_servers(*_: Any, **__: Any) -> None:
            """There is nothing to negotiate."""

        for server in self.server.servers:
            server.client.sample = sample
        inference: Any = run.parts.inference  # whose methods are replaced
        inference.require_servers = require_servers
        return run


async def drive(env: Any, groups: int, *, keep_jobs: bool) -> Run:
    """Collect groups, IN_FLIGHT at a time, as the base class's workers do."""
    run = Run()
    begin = time.perf_counter()
    await env.setup()
    run.setup = time.perf_counter() - begin
    if isinstance(env, ReasoningGymEnv):
        await env.evaluation.set.items()  # others make theirs at setup
    left = iter(range(groups))
    done = 0

    async def worker() -> None:
        nonlocal done
        for _ in left:
            item = await env.get_next_item()
            group, _ = await env.collect_trajectories(item)
            run.missing += group is None
            if keep_jobs and isinstance(item, Problem) and group is not None:
                run.jobs.append((item.recipe, answers_of(env, group)))
            done += 1
            if done in (1, groups // 2, groups):
                print(f"after {done:6d} groups: {memory_megabytes()}", file=sys.stderr)

    begin = time.perf_counter()
    async with run.monitor, run.spent:
        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    run.seconds = time.perf_counter() - begin
    await env.close()
    return run


def answers_of(env: Any, group: dict[str, Any]) -> list[str]:
    """List the distinct answers a group was scored on."""
    texts = [
        env.tokenizer.decode([token for token in mask if token != -100])
        for mask in group["masks"]
    ]
    return list(
        dict.fromkeys(a for a in (extract_answer(t).answer for t in texts) if a)
    )


def limit(
    jobs: list[tuple[Recipe, list[str]]], processes: int, *, contained: bool
) -> float:
    """Measure the groups per second of bare loops over the same work, one part a process."""
    worker = Path(__file__).with_name("bare_worker.py")
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for number in range(processes):
            part = Path(folder, f"{number}.pickle")
            part.write_bytes(pickle.dumps((jobs[number::processes], contained)))
            command = [sys.executable, str(worker), str(part)]
            running.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={"PYTHONHASHSEED": "0", "PYTHONPATH": str(worker.parents[1])},
                )
            )
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        begin = time.perf_counter()
        for process in running:
            process.communicate(b"go\n")
        return len(jobs) / (time.perf_counter() - begin)


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Measure one environment once, in this process."""
    logging.disable(logging.INFO)
    tokenizer = build_tokenizer(Path(tempfile.mkdtemp()))
    env = build(load_class(options.environment), tokenizer, options)
    run = asyncio.run(drive(env, options.groups, keep_jobs=options.limit))
    # Ours returns every group that it doesn't lose. Others score groups whose scores are all equal
    # and drop them, which looks the same.
    if run.missing > (options.groups - 1 if options.environment else 0):
        sys.exit(
            f"{run.missing} of {options.groups} groups were lost: nothing was measured"
        )
    numbers = run.numbers(options.groups)
    if options.limit:
        processes = 2 * (env.config.task_processes or default_processes())
        numbers["limit, forked children"] = limit(run.jobs, processes, contained=True)
        numbers["limit, in process"] = limit(run.jobs, processes, contained=False)
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--delay", type=float, default=0.0, help="seconds the server takes"
    )
    parser.add_argument(
        "--limit", action="store_true", help="measure bare loops as well"
    )
    parser.add_argument(
        "--long", action="store_true", help=f"{LONG} groups, for the memory"
    )
    parser.add_argument(
        "--environment", help="FILE.py:ClassName of another environment"
    )
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        numbers = measure(options)
        # Verifiers of upstream print, and end no line.
        print(f"\n{json.dumps(numbers)}")
        return
    groups = LONG if options.long else options.groups
    own = [sys.executable, __file__, "--one", "--groups", str(groups)]
    own += ["--delay", str(options.delay)]
    programs = {OURS: [*own, *(["--limit"] if options.limit else [])]}
    if options.environment:
        programs[options.environment] = [*own, "--environment", options.environment]
    print(
        f"{groups} groups of {GROUP_SIZE}, {IN_FLIGHT} under way, delay {options.delay} s"
    )
    show(in_turn(programs, options.rounds))


if __name__ == "__main__":
    main()
