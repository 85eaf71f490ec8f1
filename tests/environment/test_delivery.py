"""From a collected group to the trainer, with an API that refuses, fails, hangs or forgets."""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from scripted_server import Between, proxy
from trainer_api import MAX_TOKEN_LEN, Api, api_and_between, let_in, pulled, until

from reasoning_gym_environment import ReasoningGymEnv
from reasoning_gym_environment.atropos.api_client import (
    ApiRefusedError,
    LostStateError,
)
from reasoning_gym_environment.demo.policy import ScriptedPolicy
from reasoning_gym_environment.demo.server import PolicyServer
from reasoning_gym_environment.errors import TRY_AGAIN
from reasoning_gym_environment.util.outages import UnreachableError

Change = Callable[[dict[str, Any]], dict[str, Any]]
"""What of a group is replaced before it is sent."""
SETTINGS = {"ensure_scores_are_not_same": False, "group_size": 4}
HONEST = ScriptedPolicy([f"<answer>{n}</answer>" for n in (1, 2, 3, 4, 5)])


@pytest_asyncio.fixture(scope="module")
async def policy_url(tokenizer: Any) -> AsyncIterator[str]:
    async with PolicyServer(HONEST, tokenizer) as server:
        yield server.url


class Changing(ReasoningGymEnv):
    """Changes each group before it is delivered.

    Attributes:
        change: how; a test sets it.
    """

    change: Change = staticmethod(dict)

    async def postprocess_histories(self, trajectories: Any) -> Any:
        return {**trajectories, **self.change(trajectories)}


@dataclass
class Serving:
    """A registered environment, the API it feeds, and the proxy before that."""

    env: Changing
    api_url: str
    between: Between

    async def deliver(self, change: Change = dict, **changes: Any) -> Counter[str]:
        """Collect a group, change it and send it; gives what that added to the counts."""
        before = Counter(self.env.statistics.counts)
        problem = await self.env.get_next_item()
        self.env.change = lambda group: {**change(group), **changes}
        await self.env.run.groups.work_on(problem)
        return Counter(self.env.statistics.counts) - before

    async def arrived(self) -> list[dict[str, Any]]:
        """What the trainer gets of all that was sent."""
        groups = []
        while batch := await pulled(self.api_url):
            groups += batch
        return groups

    async def require_two_to_arrive(self) -> None:
        """Send two groups, a batch; nothing else may be in it."""
        for _ in range(2):
            assert (await self.deliver())["groups/sent"] == 1
        assert len(await self.arrived()) == 2


@asynccontextmanager
async def registered(
    bench: Any, policy_url: str, **changes: Any
) -> AsyncIterator[Serving]:
    settings = {**SETTINGS, **changes}
    async with (
        api_and_between(bench.folder) as (api_url, between),
        bench.environment(
            policy_url, "vllm", of=Changing, rollout_server_url=between.url, **settings
        ) as env,
    ):
        await env.run.register()
        assert env.max_token_len == MAX_TOKEN_LEN
        yield Serving(env, api_url, between)
    assert not any(env.statistics.unaccounted().values())


@pytest_asyncio.fixture(scope="module")
async def serving(module_bench: Any, policy_url: str) -> AsyncIterator[Serving]:
    async with registered(module_bench, policy_url) as serving:
        yield serving


def with_last_logprob(value: float) -> Change:
    return lambda group: {
        "inference_logprobs": [
            [*row[:-1], value] for row in group["inference_logprobs"]
        ]
    }


def resized(rows: int) -> Change:
    names = ("tokens", "masks", "scores", "overrides", "inference_logprobs")
    size = {"group_overrides": {"group_size": rows}}
    return lambda group: {**{name: (group[name] * 2)[:rows] for name in names}, **size}


UNSOUND: dict[str, Change] = {
    **{
        f"logprob {bad}": with_last_logprob(bad)
        for bad in (float("nan"), float("inf"), 1.0)
    },
    "3 rows, which never add up at the API": resized(3),
    "8 rows, which never add up at the API": resized(8),
    # the API would take it, and fail at every batch that holds it
    "half a character": lambda _: {
        "messages": [[{"role": "assistant", "content": "\ud800"}]] * 4
    },
}


@pytest.mark.parametrize("change", UNSOUND.values(), ids=UNSOUND)
async def test_an_unsound_group_is_refused_and_sound_ones_arrive(
    serving: Serving, change: Change
) -> None:
    counted = await serving.deliver(change)
    assert (counted["groups/refused"], counted["groups/sent"]) == (1, 0)
    await serving.require_two_to_arrive()


async def test_what_is_refused_is_said_with_its_reason(
    bench: Any, policy_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with registered(bench, policy_url) as serving:
        await serving.deliver(scores=[1.0, 0.0, float("nan"), 0.0])
        await serving.deliver(scores=[1.0])
    assert [m for m in caplog.messages if m.startswith("Not sent")] == [
        "Not sent: a group of gcd, 1 refused so far: nan is not a score"
    ]


async def test_a_body_that_a_proxy_refuses_is_not_counted_as_sent(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    serving.between.largest = 100
    refused = await serving.deliver()
    serving.between.largest = float("inf")
    assert refused["groups/refused"] == 1
    assert "groups/sent" not in refused
    [said] = [m for m in caplog.messages if m.startswith("Not sent")]
    assert said.endswith(
        f"the Atropos API refuses {serving.between.url}/scored_data with 413 Request Entity Too "
        "Large: <h1>413 Request Entity Too Large</h1>"
    )
    await serving.require_two_to_arrive()


async def test_an_api_that_is_out_for_seconds_costs_nothing_and_is_said(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    between = serving.between
    between.status = 503
    sending = [asyncio.create_task(serving.deliver()) for _ in range(2)]
    polling = asyncio.create_task(serving.env.run.follow_trainer())
    await until(lambda: in_flight(serving.env) == 2)
    failures = between.failures
    await until(lambda: between.failures >= failures + 3)  # all three fail
    assert serving.env.run.waits_for() == f"the Atropos API at {between.url}"
    between.status = None
    await asyncio.gather(*sending, polling)
    assert "the Atropos API" not in serving.env.run.waits_for()
    assert len(await serving.arrived()) == 2
    name = f"The Atropos API at {serving.between.url}"
    [begun, ended] = [m for m in caplog.messages if m.startswith(name)]
    assert begun == (
        f"{name} doesn't answer: 503 Service Unavailable: <h1>no healthy upstream</h1>"
    )
    assert ended.startswith(f"{name} is back after ")
    assert ended.endswith(" s, 0 groups lost")


COUNTS = ("current_step", "queue_size", "self_queue_size")
VALID: dict[str, dict[str, Any]] = {
    "/wandb_info": {"group": None, "project": "p"},
    "/info": {"batch_size": -1, "max_token_len": 9},
    "/register-env": {
        "status": "success",
        "env_id": 0,
        "wandb_name": "env_0",
        "checkpoint_dir": ".",
        "starting_step": 3,
        "checkpoint_interval": 0,
        "num_steps": 9,
    },
    "/status-env": {
        **dict.fromkeys(COUNTS, 0),
        "max_group_size": 1,
        "env_weight": 1.0,
        "unallocated_fraction": 1.0,
    },
    "/scored_data": {},
}
NO_COUNT = (-1, "0", None, True, 1.5, float("nan"), 10**30)
LIES: dict[str, Sequence[Any]] = {
    **dict.fromkeys((*COUNTS, "env_id", "starting_step"), NO_COUNT),
    "max_group_size": [0, "1", 1.5],
    "env_weight": [-1.0, float("nan"), float("inf"), "heavy"],
    "unallocated_fraction": [-0.1, 1.1, float("nan"), None, "all"],
    **dict.fromkeys(("batch_size", "max_token_len"), (-2, "9", None, 1.5)),
    **dict.fromkeys(("checkpoint_interval", "num_steps"), ("9", None, 1.5)),
    "checkpoint_dir": [None, 7, "a\0b"],
    "wandb_name": [None, 7, "env", "env_x", "env_0\0_1"],
    "project": [7, ["p"]],
    "group": [7],
}


async def test_an_api_that_lies_is_told_that_its_reply_is_invalid(
    serving: Serving,
) -> None:
    trainer = serving.env.run.parts.trainer
    client = trainer.client
    asking = {
        "/wandb_info": trainer.wandb_run,
        "/info": lambda: client.request("GET", "/info"),
        "/register-env": lambda: client.request("POST", "/register-env", {}),
        "/status-env": serving.env.run.follow_trainer,
        "/scored_data": lambda: client.request("POST", "/scored_data", {}),
    }
    client.patience = 0.0
    for path, valid in VALID.items():
        changed = [
            (name, {**valid, name: lie}) for name in valid for lie in LIES.get(name, [])
        ]
        whole = [("object", lie) for lie in ([], None, "ok", 1)]
        texts = [
            ("no JSON", text) for text in ("", "<h1>hi</h1>", "[" * 10_000, "x" * 10**7)
        ]
        names = valid.keys() & LIES.keys() - {"group", "project"}
        lacking = [(name, {k: valid[k] for k in valid if k != name}) for name in names]
        encoded = [(why, json.dumps(lie)) for why, lie in [*changed, *whole, *lacking]]
        for why, lie in [*encoded, *texts]:
            serving.between.lies = {path: lie}
            said = why if why == "no JSON" else f"invalid reply to {path}: .*{why}"
            with pytest.raises(UnreachableError, match=said):
                await asking[path]()
    serving.between.lies = {}
    client.patience = 60.0
    await serving.require_two_to_arrive()


async def test_groups_that_no_trainer_learns_from_are_filtered(
    bench: Any, policy_url: str
) -> None:
    filtering = {"ensure_scores_are_not_same": True}
    async with registered(bench, policy_url, **filtering) as serving:
        added = await serving.deliver(scores=[1.0] * 4)
    assert (added["groups/filtered"], added["groups/sent"]) == (1, 0)


@pytest.mark.parametrize(
    ("length", "outcome"), [(MAX_TOKEN_LEN, "too_long"), (MAX_TOKEN_LEN - 1, "sent")]
)
async def test_a_row_as_long_as_the_trainers_limit_is_not_sent(
    length: int, outcome: str, serving: Serving
) -> None:
    def lengthen(group: dict[str, Any]) -> dict[str, Any]:
        columns = ("tokens", "masks", "inference_logprobs")
        return {name: [padded(row, length) for row in group[name]] for name in columns}

    added = await serving.deliver(lengthen)
    assert added[f"groups/{outcome}"] == 1
    if outcome == "sent":
        await serving.deliver()
        assert len(await serving.arrived()) == 2


def padded(row: Sequence[float], length: int) -> list[float]:
    """A row that repeats its last value up to this length."""
    return [*row, *[row[-1]] * (length - len(row))]


async def test_a_group_is_failed_when_patience_ends(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    client = serving.env.run.parts.trainer.client
    serving.between.status, client.patience = 502, 1.5
    failed = await serving.deliver()
    assert failed["groups/send_failures"] == 1
    problems = [await serving.env.get_next_item() for _ in range(2)]
    await asyncio.gather(*map(serving.env.run.groups.work_on, problems))
    assert caplog.text.count("A group is lost") == 1  # once a minute
    with pytest.raises(UnreachableError) as raised:
        await serving.env.run.follow_trainer()
    client.patience = 60.0
    serving.between.status = None
    await serving.env.run.follow_trainer()
    assert raised.value.exit_status == TRY_AGAIN
    assert str(raised.value) == (
        f"the Atropos API at {serving.between.url} has not answered for 1.5 s (502 Bad Gateway: "
        "<h1>no healthy upstream</h1>): start it and its trainer, then this environment again"
    )
    assert "is back after" in caplog.messages[-1]
    assert caplog.messages[-1].endswith(", 3 groups lost")


def in_flight(env: ReasoningGymEnv) -> int:
    """How many groups are collected and have no outcome."""
    return env.statistics.unaccounted()["groups/in_flight"]


async def work_until_it_sends(
    env: ReasoningGymEnv, between: Between
) -> asyncio.Task[Any]:
    """A worker whose group is on its way to an API that fails."""
    failures = between.failures
    problem = await env.get_next_item()
    worker = asyncio.create_task(env.run.groups.work_on(problem))
    await until(lambda: between.failures > failures)
    assert in_flight(env) == 1
    return worker


async def test_a_group_on_its_way_arrives_though_its_worker_is_cancelled(
    serving: Serving,
) -> None:
    env, before = serving.env, Counter(serving.env.statistics.counts)
    serving.between.status = 502
    worker = await work_until_it_sends(env, serving.between)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    assert worker.cancelled()
    assert in_flight(env) == 1
    serving.between.status = None
    await until(lambda: in_flight(env) == 0)
    added = Counter(env.statistics.counts) - before
    assert (added["groups/collected"], added["groups/sent"]) == (1, 1)
    assert (added["problems/retried"], env.backlog) == (0, [])
    await serving.deliver()
    assert len(await serving.arrived()) == 2


async def test_a_worker_cancelled_just_after_its_group_was_sent_does_not_have_it_asked_again(
    serving: Serving,
) -> None:
    env, before = serving.env, Counter(serving.env.statistics.counts)
    serving.between.status = 502
    worker = await work_until_it_sends(env, serving.between)
    serving.between.status = None
    while env.statistics.counts["groups/sent"] == before["groups/sent"]:
        await asyncio.sleep(0)
    worker.cancel()  # before it has gone on
    await asyncio.gather(worker, return_exceptions=True)
    assert worker.cancelled()
    added = Counter(env.statistics.counts) - before
    assert (added["groups/sent"], added["problems/retried"], env.backlog) == (1, 0, [])
    await serving.deliver()
    assert len(await serving.arrived()) == 2


async def test_a_group_that_cannot_arrive_is_cancelled_at_the_end(
    bench: Any, policy_url: str
) -> None:
    async with (
        api_and_between(bench.folder) as (_, between),
        bench.environment(
            policy_url, rollout_server_url=between.url, ensure_scores_are_not_same=False
        ) as env,
    ):
        await env.run.register()
        between.status = 502
        worker = await work_until_it_sends(env, between)
    with pytest.raises(asyncio.CancelledError):
        await worker
    counts = env.statistics.counts
    assert (counts["groups/collected"], counts["groups/cancelled"]) == (1, 1)
    assert not any(env.statistics.unaccounted().values())


async def test_an_api_that_refuses_to_say_where_the_trainer_is_ends_the_run(
    serving: Serving,
) -> None:
    serving.between.status = 404
    with pytest.raises(
        ApiRefusedError, match=r"refuses .*/status-env with 404 Not Found"
    ):
        await serving.env.run.follow_trainer()
    serving.between.status = None


@pytest.mark.nightly
async def test_a_hanging_api_is_said_and_waited_for(
    bench: Any, policy_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Api(bench.folder) as api,
        bench.environment(policy_url, rollout_server_url=api.url) as env,
    ):
        await env.run.register()
        os.kill(api.pid, signal.SIGSTOP)
        polling = asyncio.create_task(env.run.follow_trainer())
        try:
            await until(lambda: "doesn't answer for 8 s: it hangs" in caplog.text)
        finally:
            os.kill(api.pid, signal.SIGCONT)
        await polling
    assert f"The Atropos API at {api.url} is back after " in caplog.text


async def test_an_api_that_has_forgotten_us_ends_the_run_before_it_gets_a_group(
    bench: Any, policy_url: str
) -> None:
    """The trainer comes back at the same step, and our id goes to one of our own name."""
    async with (
        Api(bench.folder) as api,
        proxy(api.url) as between,
        bench.environment(policy_url, rollout_server_url=between.url) as env,
    ):
        await env.run.register()
        await env.run.follow_trainer()
        polling = asyncio.create_task(polled(env))
        between.status = 502
        await until(lambda: between.failures)
        await api.start_anew(step=0)
        await let_in(api.url, "another")  # has the id of our restart probe
        newcomer = await let_in(api.url, "env")
        between.status = None
        with pytest.raises(LostStateError) as raised:
            await asyncio.wait_for(polling, 30)
        assert newcomer["env_id"] == env.env_id
        assert newcomer["wandb_name"] == env.wandb_prepend
        assert env.run.parts.trainer.client.lost
    assert raised.value.exit_status == TRY_AGAIN
    assert str(raised.value) == (
        f"the Atropos API at {between.url} was restarted: it does not know this environment; "
        "start this environment again, and it continues the checkpoint of the trainer's step"
    )


async def polled(env: ReasoningGymEnv) -> None:
    while True:
        await env.run.follow_trainer()
        await asyncio.sleep(0.1)


async def test_a_step_that_goes_backwards_ends_the_run(
    bench: Any, policy_url: str
) -> None:
    """No request failed in between: a load balancer goes from one API to the next like that."""
    async with (
        Api(bench.folder) as api,
        bench.environment(policy_url, rollout_server_url=api.url) as env,
    ):
        await api.start_anew(step=26)
        await env.run.register()
        await api.start_anew(step=10)
        await let_in_up_to(env, api.url)
        with pytest.raises(
            LostStateError, match="it went back from step 26 to step 10; start"
        ):
            await env.run.follow_trainer()


async def let_in_up_to(env: ReasoningGymEnv, url: str, **changes: Any) -> None:
    """Register others until one has the environment's id."""
    while (await let_in(url, "another", **changes))["env_id"] != env.env_id:
        pass


async def test_an_id_that_belongs_to_another_environment_ends_the_run(
    bench: Any, policy_url: str
) -> None:
    """Groups of another size than the API expects under an id are kept back there."""
    async with (
        Api(bench.folder) as api,
        bench.environment(
            policy_url, rollout_server_url=api.url, ensure_scores_are_not_same=False
        ) as env,
    ):
        await env.run.register()
        await api.start_anew(step=0)
        await let_in_up_to(env, api.url, group_size=16)
        await env.run.groups.work_on(await env.get_next_item())
        with pytest.raises(
            LostStateError, match="it has our id for another environment"
        ):
            await env.run.follow_trainer()
    assert env.statistics.counts["groups/send_failures"] == 1


@pytest.mark.nightly
async def test_serve_ends_with_the_status_for_trying_again(
    bench: Any, policy_url: str
) -> None:
    async with Api(bench.folder) as api:
        changes = {"max_token_length": 1024, "debug_logging": True}
        options = bench.options(policy_url, rollout_server_url=api.url, **changes)
        async with bench.command("serve", *options) as command:
            await command.until_logged("gcd:")  # it asks the API for the trainer's step
            await api.start_anew(step=0)
            await let_in(api.url, "another")
            assert await command.exit_code() == TRY_AGAIN, command.said()
    said = command.said()
    assert said.splitlines()[-1].startswith(
        f"error: the Atropos API at {api.url} was restarted: "
    )
    assert "Traceback" not in said
    assert "Group accounting mismatch" not in said
    [accounting] = [line for line in said.splitlines() if "Groups: " in line]
    assert " collected = " in accounting
