"""Servers that lie, forget or fall silent: what is lost is asked again, counted and said."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from process_tree import children, in_linux
from scripted_server import (
    LIES,
    Between,
    ScriptedServer,
    empty,
    foreign_token,
    one_fewer,
    one_more,
    other_tokens,
    proxy,
    without_a_logprob,
)
from serve_loop import HONEST, MAX_TOKEN_LEN, Keeping, training
from trainer_api import until

from reasoning_gym_environment import ReasoningGymEnv
from reasoning_gym_environment.demo.trainer import ApiServer
from reasoning_gym_environment.inference.liveness import Liveness, SilenceTimes
from reasoning_gym_environment.records import recipe_key

ENDS = ["sent", "written", "refused", "send_failures", "cancelled", "unscored"]
ENDS += ["filtered", "too_long"]


@dataclass
class Asking:
    """An environment that is set up, and its inference server."""

    env: Keeping
    server: ScriptedServer

    async def group(self) -> Any:
        """Work on a new problem; gives its group, or None where it is lost."""
        problem = await self.env.get_next_item()
        is_done = await self.env.run.groups.work_on(problem)
        return self.env.groups.pop() if is_done else None


@pytest_asyncio.fixture(scope="module", params=("openai", "vllm", "sglang", "trl"))
async def asking(
    request: pytest.FixtureRequest, module_bench: Any, tokenizer: Any
) -> AsyncIterator[Asking]:
    async with (
        ScriptedServer(HONEST, tokenizer, chat_tokens=True) as server,
        module_bench.environment(server.url, request.param, of=Keeping) as env,
    ):
        yield Asking(env, server)


@pytest.mark.nightly
async def test_a_group_with_a_lie_in_it_is_lost_and_asked_again(asking: Asking) -> None:
    env, counts = asking.env, asking.env.statistics.counts
    lost, again = counts["groups/lost"], counts["problems/retried"]
    for number, lie in enumerate(LIES.values(), start=1):
        asking.server.change = lie
        assert await asking.group() is None
        assert counts["groups/lost"] == lost + number
        assert counts["problems/retried"] == again + number
        assert len(env.backlog) == number
    if env.inference.server_type != "sglang":  # its tokens and logprobs come in pairs
        asking.server.change = without_a_logprob
        assert await asking.group() is None
    asking.server.change = None
    env.backlog.clear()
    assert await asking.group() is not None


@pytest.mark.parametrize("change", [one_fewer, one_more])
async def test_a_completion_too_few_or_too_many_costs_no_group(
    asking: Asking, change: Any
) -> None:
    asking.server.change, requests = change, asking.server.requests
    group = await asking.group()
    asking.server.change = None
    assert len(group["tokens"]) == 4
    assert asking.server.requests == requests + (2 if change is one_fewer else 1)


async def test_empty_completions_are_data_that_moves_nothing(asking: Asking) -> None:
    asking.server.change = empty
    group = await asking.group()
    asking.server.change = None
    masked = {"set_advantage_to_zero": True}
    trained = [sum(mask != -100 for mask in row) for row in group["masks"]]
    assert trained[0] > 0
    assert trained[1:] == [0] * 3
    assert group["overrides"] == [{}, masked, masked, masked]
    assert group["statuses"][1:] == ["no_answer"] * 3


async def test_a_token_beyond_the_vocabulary_costs_its_completion_alone(
    asking: Asking,
) -> None:
    counts = asking.env.statistics.counts
    lost = counts["groups/lost"]
    before = counts["rollouts/ended_otherwise"]
    asking.server.change = foreign_token
    group = await asking.group()
    asking.server.change = None
    assert group["overrides"] == [{}, {}, {}, {"set_advantage_to_zero": True}]
    assert 10**6 not in group["tokens"][3]
    assert counts["rollouts/ended_otherwise"] == before + 1
    assert counts["groups/lost"] == lost


@pytest.mark.parametrize("kind", ["openai", "vllm", "sglang"])
async def test_token_ids_of_another_text_cost_the_group(
    kind: str, bench: Any, tokenizer: Any
) -> None:
    async with (
        ScriptedServer(HONEST, tokenizer, chat_tokens=True) as server,
        bench.environment(server.url, kind) as env,
    ):
        server.change = other_tokens
        problem = await env.get_next_item()
        assert not await env.run.groups.work_on(problem)
        assert env.statistics.counts["groups/lost"] == 1


async def test_fewer_texts_than_asked_for_cost_the_missing_ones(
    bench: Any, tokenizer: Any
) -> None:
    async with (
        ScriptedServer(HONEST, tokenizer) as server,
        bench.environment(server.url) as env,
    ):
        server.change = one_fewer
        group, _ = await env.collect_trajectories(await env.get_next_item())
    assert len(group["tokens"]) == 4
    assert server.requests == 2


@pytest.mark.nightly
async def test_a_problem_is_asked_again_three_times_and_then_given_up(
    bench: Any, tokenizer: Any
) -> None:
    async with (
        ScriptedServer(HONEST, tokenizer) as server,
        bench.environment(server.url, "vllm") as env,
    ):
        server.change = LIES["nan"]
        problem = await env.get_next_item()
        for number in range(1, 5):
            assert not await env.run.groups.work_on(problem)
            assert env.statistics.counts["problems/retried"] == min(number, 3)
        assert env.statistics.counts["problems/given_up"] == 1
        assert env.backlog == [problem] * 3


async def test_a_run_keeps_no_problem_whose_group_has_come(
    bench: Any, tokenizer: Any
) -> None:
    async with (
        ScriptedServer(HONEST, tokenizer) as server,
        bench.environment(server.url, "vllm", dump_all_rollouts=True) as env,
    ):
        problem = await env.get_next_item()
        assert await env.run.groups.work_on(problem)
        assert sum(env.run.parts.dumps.written.values()) == 1
        assert recipe_key(problem.recipe) not in str(vars(env.run.groups))


@asynccontextmanager
async def served(
    bench: Any, server: ScriptedServer, **changes: Any
) -> AsyncIterator[tuple[ReasoningGymEnv, Any, Between]]:
    """An environment that serves in this process, the trainer, and the proxy before the API."""
    settings = {
        "ensure_scores_are_not_same": False,
        "max_token_length": MAX_TOKEN_LEN,
        "max_num_workers": 6,
        "max_batches_offpolicy": 50,
        **changes,
    }
    async with (
        ApiServer() as api,
        proxy(api.url) as between,
        training(api, bench.folder, batch_size=8) as trainer,
        bench.unprepared(
            server.url, "vllm", rollout_server_url=between.url, **settings
        ) as env,
    ):
        serving = asyncio.create_task(env.env_manager())
        try:
            await until(lambda: trainer.batches or serving.done())
            yield env, trainer, between
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving


def require_balance(env: ReasoningGymEnv) -> None:
    """Require that no group is unaccounted at the end of a run."""
    counts = env.statistics.counts
    assert not any(env.statistics.unaccounted().values()), env.statistics.accounting()
    assert counts["groups/collected"] == sum(counts[f"groups/{end}"] for end in ENDS)
    assert counts["groups/started"] == (
        counts["groups/collected"]
        + counts["groups/lost"]
        + counts["groups/interrupted"]
    )


def shorten_silences(env: ReasoningGymEnv) -> None:
    """Let seconds of silence count as a minute does."""
    times = SilenceTimes(quiet=1.0, silent=2.0, long=4.0, steady=2.0)
    for backend in env.inference.failover.backends:
        backend.liveness = Liveness(backend.server, times=times)


@pytest.mark.nightly
async def test_a_silent_server_is_said_and_loses_no_group(
    bench: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that blocks its event loop while it generates."""
    async with (
        ScriptedServer(HONEST, tokenizer) as server,
        served(bench, server) as (env, trainer, _),
    ):
        shorten_silences(env)
        server.awake.clear()
        name = f"{server.url}/v1"
        await until(lambda: f"{name} has been silent for" in caplog.text)
        await until(lambda: " wait" in env.inference.failover.waiting)
        await until(lambda: env.run.waits_for() == f"inference at {name}")
        before = trainer.batches
        server.awake.set()
        await until(lambda: trainer.batches > before + 3)
        assert env.inference.failover.waiting == ""
        assert env.statistics.counts["groups/lost"] == 0
    assert f"{name} answers again, after" in caplog.text
    require_balance(env)


@pytest.mark.nightly
async def test_requests_that_a_hole_has_swallowed_are_asked_again(
    bench: Any, tokenizer: Any
) -> None:
    async with (
        ScriptedServer(HONEST, tokenizer) as server,
        served(bench, server) as (env, trainer, _),
    ):
        shorten_silences(env)
        server.forgets = 6
        await until(lambda: not server.forgets)
        server.awake.clear()
        await until(lambda: " wait" in env.inference.failover.waiting)
        before = trainer.batches
        server.awake.set()
        await until(lambda: trainer.batches > before + 3)
        assert env.statistics.counts["groups/lost"] == 0
    require_balance(env)


@pytest.mark.nightly
async def test_a_worker_that_runs_out_of_time_gives_its_problem_back(
    bench: Any, tokenizer: Any
) -> None:
    async with (
        ScriptedServer(HONEST, tokenizer) as server,
        served(bench, server, worker_timeout=5) as (env, trainer, _),
    ):
        server.forgets = 2
        await until(lambda: env.statistics.counts["problems/retried"] >= 2)
        before = trainer.batches
        await until(lambda: trainer.batches > before + 3)
        assert env.statistics.counts["groups/interrupted"] >= 2
    require_balance(env)


@pytest.mark.nightly
@in_linux
async def test_the_accounting_holds_under_every_fault_together(
    bench: Any, tokenizer: Any
) -> None:
    """Each second another fault, from lying servers to killed hosts."""
    rng = random.Random(11)
    async with (
        ScriptedServer(HONEST, tokenizer, failure_rate=0.1) as server,
        served(bench, server, worker_timeout=4, dump_failed_rollouts=True) as (
            env,
            trainer,
            between,
        ),
    ):
        shorten_silences(env)

        def kill_a_worker() -> None:
            with suppress(ProcessLookupError, IndexError):
                os.kill(rng.choice(env.run.parts.pool.pids), signal.SIGKILL)

        def kill_a_verifiers_child() -> None:
            with suppress(ProcessLookupError, IndexError):
                os.kill(
                    rng.choice(
                        [c for p in env.run.parts.pool.pids for c in children(p)]
                    ),
                    9,
                )

        faults = [
            lambda: setattr(between, "status", 503),
            lambda: setattr(between, "largest", 100),
            lambda: setattr(
                server, "change", rng.choice([*LIES.values(), one_fewer, empty])
            ),
            lambda: setattr(server, "forgets", 2),
            server.awake.clear,
            kill_a_worker,
            kill_a_verifiers_child,
        ]
        for fault in [*faults, *faults]:
            fault()
            await asyncio.sleep(1)
            between.status, between.largest = None, float("inf")
            server.change = None
            server.awake.set()
            await asyncio.sleep(0.5)
        server.change = rng.choice([*LIES.values()])
        await until(lambda: env.statistics.counts["groups/lost"] > 0)
        server.change = None
        sent = env.statistics.counts["groups/sent"]
        await until(lambda: env.statistics.counts["groups/sent"] > sent)
    require_balance(env)
    counts = env.statistics.counts
    assert counts["groups/sent"] > 0
    assert counts["groups/lost"] > 0
    assert counts["groups/interrupted"] > 0
    assert counts["groups/sent"] >= trainer.groups
