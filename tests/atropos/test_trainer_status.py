"""What the API tells a client: stale registrations, weights, batches that never come."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest
from clock import Clock
from trainer_api import Api, api_and_between, let_in, pulled

from reasoning_gym_environment.atropos.api_client import ApiClient, LostStateError
from reasoning_gym_environment.atropos.trainer_api import BatchShare, TrainerApi
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.util.outages import UnreachableError

pytestmark = pytest.mark.processes

SHARE = BatchShare(group_size=4, inference_weight=1.0, min_batch_allocation=0.5)


def trainer_api(url: str, **changes: Any) -> TrainerApi:
    return TrainerApi(ApiClient(url), SHARE, **changes)


async def registered(api: TrainerApi) -> int:
    """Register as a replica does; gives the id."""
    registration = await api.register(
        desired_name="env",
        max_token_length=2048,
        checkpoint_dir=await api.trainer_folder(),
    )
    return registration.env_id


async def status(
    api: TrainerApi, env_id: int, *, batch_size: int = 8
) -> dict[str, Any]:
    return await api.status(env_id, batch_size=batch_size)


async def send_group(url: str, env_id: int) -> None:
    row = {
        "tokens": [[1]] * 4,
        "masks": [[1]] * 4,
        "scores": [0.0] * 4,
        "env_id": env_id,
    }
    async with (
        aiohttp.ClientSession(url, raise_for_status=True) as session,
        session.post("/scored_data", json=row),
    ):
        pass


async def test_a_ghost_takes_weight_and_batches_until_it_is_disconnected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Api(tmp_path) as running:
        killed, follower = (
            trainer_api(running.url),
            trainer_api(running.url, clock=(clock := Clock(0.0))),
        )
        env_id = await registered(follower)
        await status(follower, env_id)
        assert not caplog.messages
        stale = await registered(killed)
        clock.now = 75.0
        assert (await status(follower, env_id))["env_weight"] == 0.5
        assert follower.waiting == ""  # no group waits
        for _ in range(2):
            await send_group(running.url, env_id)
        await status(follower, env_id)
        said = (
            "the trainer has taken no new batch for 75 s, since step 0: 2 groups wait"
        )
        said += " in its queue"
        assert follower.waiting == (
            f"{said}, of which 50% must come from other environments, killed ones included "
            "(min_batch_allocation)"
        )
        assert await pulled(running.url) == []
        await follower.disconnect_killed(killed.note(stale), keep=[].append)
        assert (await status(follower, env_id))["env_weight"] == 1.0
        assert follower.waiting == said
        assert len(await pulled(running.url)) == 2
        await status(follower, env_id)
        assert follower.waiting == ""
    [fell] = [message for message in caplog.messages if "env_weight" in message]
    assert fell == (
        "env_weight fell from 1.00 to 0.50, and with it the requests at once: the API counts other "
        "environments as connected, killed ones included"
    )


async def test_the_note_of_a_ghost_that_stays_is_kept_and_the_way_out_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[str] = []
    async with api_and_between(tmp_path) as (url, between):
        killed, follower, last = (
            trainer_api(url),
            trainer_api(between.url),
            trainer_api(url),
        )
        stale = await registered(killed)
        follower.client.patience = 0.0
        between.lies["/disconnect-env"] = ""
        await follower.disconnect_killed(killed.note(stale), keep=kept.append)
        assert caplog.messages[-1].startswith(
            f"Could not disconnect environment {stale} (the Atr"
        )
        way_out = f'POST {{"env_id": {stale}}} to {between.url}/disconnect-env'
        assert caplog.messages[-1].endswith(way_out)
        await last.disconnect_killed(kept.pop(), keep=kept.append)
        assert (await status(last, await registered(last)))["env_weight"] == 1.0


@pytest.mark.parametrize("knows_probe", [True, False])
async def test_no_environment_of_a_restarted_api_is_disconnected(
    *, knows_probe: bool, tmp_path: Path
) -> None:
    """Its ids are used again, and the killed process may have found out that it was restarted.

    Then the API knows the process's probe once.
    """
    kept: list[str] = []
    async with Api(tmp_path) as running:
        killed, follower = trainer_api(running.url), trainer_api(running.url)
        stale = await registered(killed)
        await running.stop()
        killed.client.patience = 0.0
        with pytest.raises(UnreachableError):
            await killed.client.request("GET", "/info")
        await running.start(step=0)
        for _ in range(stale + 1):
            stranger = await let_in(running.url, "stranger")
        assert stranger["env_id"] == stale
        if knows_probe:
            with pytest.raises(LostStateError):
                await killed.client.request("GET", "/info")
        await follower.disconnect_killed(killed.note(stale), keep=kept.append)
        assert kept == []
        mine = await registered(follower)
        assert (await status(follower, mine))["env_weight"] == 1 / (stale + 2)


async def test_a_note_that_is_not_one_disconnects_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = trainer_api("http://127.0.0.1:9")
    api.client.patience = 0.0
    for note in (
        "",
        "environment 0",
        "environment x restart-probe-1",
        "environment 0 another",
        "environment 0 restart-probe-1 more",
    ):
        await api.disconnect_killed(note, keep=[].append)
    assert caplog.messages == []  # it asked nobody, and nobody is there
    await api.disconnect_killed("environment 0 restart-probe-1", keep=[].append)
    assert caplog.messages != []


async def test_groups_that_fill_no_batch_end_the_start_of_the_only_environment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = (
        "groups of 4 can't fill the trainer's batch of 10, and smaller ones of other environments "
        "fill the rest by chance at most: set --env.group_size to 2 or 5, or the trainer's batch "
        "size to 8 or 12"
    )
    async with Api(tmp_path) as running:
        api = trainer_api(running.url)
        env_id = await registered(api)
        with pytest.raises(ConfigurationError) as raised:
            await status(api, env_id, batch_size=10)
        assert str(raised.value) == said
        other = trainer_api(running.url)
        env_id = await registered(other)
        for _ in range(2):
            await status(other, env_id, batch_size=10)
    assert caplog.messages.count(said) == 1
