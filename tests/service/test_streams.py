"""Streams over HTTP: a curriculum that learns, and states that survive a restart."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from fastapi import HTTPException
from reward_requests import Post, require_rejections, row

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.errors import WorkerLostError
from reasoning_gym_environment.problems.options import StreamOptions
from reasoning_gym_environment.records import Recipe, Score, Status
from reasoning_gym_environment.service import app
from reasoning_gym_environment.service._messages import ProblemResult
from reasoning_gym_environment.service._streams import NamedStreams
from reasoning_gym_environment.service.app import RewardService, ServiceSettings
from reasoning_gym_environment.service.client import RewardClient

pytestmark = pytest.mark.asyncio(loop_scope="session")

CURRICULUM = {"tasks": ["gcd"], "complexity_mode": "curriculum", "seed": 3}
GCD = StreamOptions(tasks=["gcd"])


@asynccontextmanager
async def keeping(gym: AsyncReasoningGym, folder: Path) -> AsyncIterator[str]:
    async with RewardService(gym, ServiceSettings(port=0, streams=folder)) as service:
        yield service.url


def results(problems: list[dict[str, Any]], solved: int) -> list[dict[str, Any]]:
    return [{"recipe": p["recipe"], "solved": solved, "attempts": 8} for p in problems]


async def test_a_stream_that_learns_without_a_group_size_says_that_scores_teach_nothing(
    gym: AsyncReasoningGym, post: Post, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with keeping(gym, tmp_path) as url:
        opened = (
            await post("/problems", {"stream": "a", "options": CURRICULUM}, url=url)
        ).body
        assert opened["note"].startswith(
            "group_size is not set, so that scores teach this stream"
        )
        recipe = opened["problems"][0]["recipe"]
        scored = {
            "stream": "a",
            "recipe": recipe,
            "completions": ["<answer>0</answer>"] * 8,
        }
        assert (await post("/score", scored, url=url)).status == 200
        told = {
            "stream": "a",
            "results": [{"recipe": recipe, "solved": 0, "attempts": 8}],
        }
        # It was awaited still.
        assert (await post("/observe", told, url=url)).status == 200
        sized = {"stream": "b", "options": {**CURRICULUM, "group_size": 8}}
        assert (await post("/problems", sized, url=url)).body["note"] == ""
        client = RewardClient(url)
        for _ in range(2):
            await asyncio.to_thread(client.problems, "a")
    assert (
        len([m for m in caplog.messages if m.startswith("Stream a: group_size is not")])
        == 1
    )


async def test_a_curriculum_climbs_and_continues_in_another_service(
    gym: AsyncReasoningGym, post: Post, tmp_path: Path
) -> None:
    async with keeping(gym, tmp_path) as url:
        asked: dict[str, Any] = {"stream": "a", "count": 20, "options": CURRICULUM}
        problems = (await post("/problems", asked, url=url)).body["problems"]
        begin = problems[0]["recipe"]["level"]
        told = {"stream": "a", "results": results(problems, 8)}
        reply = await post("/observe", told, url=url)
        assert (reply.status, reply.body) == (200, {"observed": 20})
        last = (await post("/problems", {"stream": "a", "count": 40}, url=url)).body[
            "problems"
        ]
        assert last[-1]["recipe"]["level"] > begin
    async with keeping(gym, tmp_path) as url:
        other = {"stream": "a", "options": {**CURRICULUM, "seed": 4}}
        reply = await post("/problems", other, url=url)
        assert (
            reply.status,
            "stream 'a' has other options" in reply.body["error"],
        ) == (409, True)
        again = (await post("/problems", {"stream": "a", "count": 40}, url=url)).body[
            "problems"
        ]
    assert again == last


async def oracles(gym: AsyncReasoningGym, problems: list[dict[str, Any]]) -> list[str]:
    made = [await gym.problem(problem["recipe"]) for problem in problems]
    return [f"<answer>{problem.oracle}</answer>" for problem in made]


async def test_clients_that_score_with_the_name_of_a_stream_share_its_curriculum(
    gym: AsyncReasoningGym, post: Post, tmp_path: Path
) -> None:
    options = {**CURRICULUM, "sampling": "signal", "group_size": 4}
    async with keeping(gym, tmp_path) as url:

        async def client() -> list[int]:
            levels = []
            for _ in range(12):
                asked = {"stream": "shared", "options": options}
                [problem] = (await post("/problems", asked, url=url)).body["problems"]
                levels.append(problem["recipe"]["level"])
                told = {"stream": "shared", "recipe": problem["recipe"]}
                [right] = await oracles(gym, [problem])
                for _ in range(2):  # a group comes in two parts
                    score = {**told, "completions": [right, right]}
                    assert (await post("/score", score, url=url)).status == 200
            return levels

        levels = await asyncio.gather(*(client() for _ in range(4)))
        last = (await post("/problems", {"stream": "shared"}, url=url)).body
        again = {"stream": "shared", "results": results(last["problems"], 8)}
        assert (await post("/observe", again, url=url)).status == 200
    assert all(own[-1] > own[0] for own in levels)
    assert last["problems"][0]["recipe"]["level"] > 0
    assert last["problems"][0]["asked_again"] is False
    assert last["sampling"]["sampling/fresh_with_signal"] == 0.0
    assert last["sampling"]["sampling/incomplete_groups"] == 0


async def test_a_group_counts_once_however_often_it_is_told(
    gym: AsyncReasoningGym, post: Post, tmp_path: Path
) -> None:
    async with keeping(gym, tmp_path) as url:
        asked = {"stream": "s", "count": 2, "options": {**CURRICULUM, "group_size": 2}}
        first, second = (await post("/problems", asked, url=url)).body["problems"]
        text = (await oracles(gym, [first]))[0]
        told = {"stream": "s", "recipe": first["recipe"], "completions": [text, "no"]}
        for _ in range(2):  # once more, as after a lost reply
            assert (await post("/score", told, url=url)).status == 200
        reply = await post(
            "/observe", {"stream": "s", "results": results([first], 8)}, url=url
        )
        assert (reply.status, "it was observed already" in reply.body["error"]) == (
            404,
            True,
        )
        observed = {"stream": "s", "results": results([second], 8)}
        assert (await post("/observe", observed, url=url)).status == 200
        late = {**told, "recipe": second["recipe"]}
        assert (await post("/score", late, url=url)).status == 200
        account = (await post("/problems", {"stream": "s"}, url=url)).body["sampling"]
    assert account["sampling/fresh_with_signal"] == 0.5
    assert account["sampling/rollouts_per_group_with_signal"] == 10


async def test_completions_count_once_if_the_reply_to_them_is_lost(
    gym: AsyncReasoningGym, post: Post, tmp_path: Path
) -> None:
    replies = []
    async with keeping(gym, tmp_path) as url:

        async def lose_the_first_reply(request: web.Request) -> web.Response:
            replies.append(await post(request.path, await request.json(), url=url))
            if len(replies) == 1:
                assert request.transport is not None
                request.transport.close()
            return web.json_response(replies[-1].body)

        options = {**CURRICULUM, "group_size": 4}
        asked: dict[str, Any] = {"stream": "s", "options": options}
        [problem] = (await post("/problems", asked, url=url)).body["problems"]
        relay = web.Application()
        relay.router.add_post("/score", lose_the_first_reply)
        async with TestServer(relay) as server:
            client = RewardClient(f"http://127.0.0.1:{server.port}")
            for _ in range(2):
                await asyncio.to_thread(
                    client.score, problem["recipe"], ["no", "4"], stream="s"
                )
        sampling = (await post("/problems", asked, url=url)).body["sampling"]
    assert [reply.status for reply in replies] == [200] * 3
    assert sampling["sampling/fresh_with_signal"] == 0, "the group is whole, and counts"
    stored = json.loads((tmp_path / "s.json").read_text())
    assert problem["recipe"] not in stored["state"]["ahead"]


async def test_nemo_gym_responses_feed_a_stream(
    gym: AsyncReasoningGym, post: Post, tmp_path: Path
) -> None:
    async with keeping(gym, tmp_path) as url:
        asked = {"stream": "n", "options": {"tasks": ["gcd"], "group_size": 2}}
        [problem] = (await post("/problems", asked, url=url)).body["problems"]
        [right] = await oracles(gym, [problem])
        for text in (right, "no"):
            told = row(problem["question"], text, recipe=problem["recipe"], stream="n")
            assert (await post("/verify", told, url=url)).body["stream"] == "n"
        account = (await post("/problems", {"stream": "n"}, url=url)).body["sampling"]
    assert account["sampling/fresh_with_signal"] == 1.0


INVALID = """
404 /score {"stream": "no", "recipe": {"task": "gcd", "seed": 4}, "completions": ["4"]}
> stream 'no' does not exist: ask for its problems first
422 /score {"stream": "no", "entry": {"question": "", "answer": "4", "metadata":
{"source_dataset": "gcd"}}, "completions": ["4"]}
> stream: its problems have recipes, got an entry
422 /problems {"stream": "x", "options": {"group_size": 0}}
> group_size
404 /problems {"stream": "new"}
> stream 'new' does not exist: send options
422 /problems {"stream": "../x", "options": {}}
> stream: String should match
422 /problems {"stream": "x", "count": 0}
> count: Input should be greater than
422 /problems {"stream": "x", "options": {"tasks": ["gdc"]}}
> cannot start stream 'x': include_tasks: unknown task or category 'gdc'
422 /problems {"stream": "x", "options": {"complexity_mode": "hard"}}
> options.complexity_mode: Input should be 'random', 'curriculum' or 'fixed'
422 /problems {"stream": "x", "options": {"complexty_mode": "random"}}
> options: unknown setting 'complexty_mode'; did you mean complexity_mode
404 /observe {"stream": "no", "results": [{"recipe": {}, "solved": 0, "attempts": 1}]}
> stream 'no' does not exist: ask for its problems first
"""


async def test_an_invalid_stream_request_is_rejected(post: Post) -> None:
    await require_rejections(post, INVALID)


async def test_each_handed_out_problem_accepts_one_result(post: Post) -> None:
    asked: dict[str, Any] = {
        "stream": "once",
        "count": 2,
        "options": {"tasks": ["gcd"]},
    }
    first, second = (await post("/problems", asked)).body["problems"]
    told = {"stream": "once", "results": results([first], 9)}
    reply = await post("/observe", told)
    says = "results.0.solved must be at most attempts (8), got 9"
    assert (reply.status, reply.body) == (422, {"error": says})
    assert (
        await post("/observe", {**told, "results": results([first], 8)})
    ).status == 200
    for again in (results([second, first], 1), results([second, second], 1)):
        reply = await post("/observe", {**told, "results": again})
        assert reply.status == 404
        assert (
            "results.1.recipe: stream 'once' does not await its result"
            in reply.body["error"]
        )
    unscored = [{"recipe": second["recipe"], "solved": 0, "attempts": 0}]
    assert (await post("/observe", {**told, "results": unscored})).status == 200


async def test_a_stream_keeps_its_options(
    gym: AsyncReasoningGym, tmp_path: Path
) -> None:
    streams = NamedStreams(gym, tmp_path)
    assert len((await streams.next("one", 2, GCD))[0]) == 2
    with pytest.raises(
        HTTPException, match="stream 'one' has other options: omit them"
    ):
        await streams.next("one", 1, StreamOptions(tasks=["lcm"]))
    assert len((await streams.next("one", 1, None))[0]) == 1
    await streams.close()


async def test_opening_a_stream_closes_an_idle_one_and_both_continue(
    gym: AsyncReasoningGym, tmp_path: Path
) -> None:
    options = StreamOptions.model_validate(CURRICULUM)
    alone = NamedStreams(gym, tmp_path / "alone")
    expected = [p.recipe for p in (await alone.next("one", 6, options))[0]]
    streams = NamedStreams(gym, tmp_path / "shared", most=1)
    first = [p.recipe for p in (await streams.next("one", 3, options))[0]]
    for name in ("two", "one", "two"):
        await streams.next(name, 1, options)
    told = [ProblemResult(recipe=r.to_json(), solved=0, attempts=1) for r in first]
    await streams.observe("one", told[:2])
    await streams.next("two", 1, None)
    with pytest.raises(HTTPException, match=r"does not await its result"):
        await streams.observe("one", told[:1])
    last = [p.recipe for p in (await streams.next("one", 2, None))[0]]
    assert [*first, *last] == [*expected[:3], *expected[4:]]
    await streams.observe("one", told[2:])
    for each in (alone, streams):
        await each.close()


async def test_a_closed_stream_keeps_the_groups_that_are_scored_in_part(
    gym: AsyncReasoningGym, tmp_path: Path
) -> None:
    streams = NamedStreams(gym, tmp_path, most=1)
    options = StreamOptions.model_validate({**CURRICULUM, "group_size": 2})
    [problem], *_ = await streams.next("one", 1, options)
    for _ in range(2):
        streams.report_scores(
            "one", problem.recipe, [Score(score=1.0, status=Status.SOLVED)]
        )
        await streams.save()
        await streams.next("two", 1, GCD)
    assert json.loads((tmp_path / "one.json").read_text())["handed_out"] == 0
    await streams.close()


async def test_a_new_stream_is_rejected_while_all_are_in_use(
    gym: AsyncReasoningGym, tmp_path: Path
) -> None:
    streams = NamedStreams(gym, tmp_path, most=1)
    await streams.next("one", 1, GCD)
    using = asyncio.create_task(streams.next("one", 64, None))
    await asyncio.sleep(0)
    with pytest.raises(HTTPException, match="all 1 open streams are in use") as refused:
        await streams.next("two", 1, GCD)
    assert (refused.value.status_code, refused.value.headers) == (
        409,
        {"Retry-After": "1"},
    )
    await using
    assert len((await streams.next("two", 1, GCD))[0]) == 1
    await streams.close()


async def test_the_number_of_streams_is_bounded(
    gym: AsyncReasoningGym, tmp_path: Path
) -> None:
    streams = NamedStreams(gym, tmp_path, most=1, most_files=2)
    for name in ("one", "two", "one"):
        await streams.next(name, 1, GCD)
    with pytest.raises(
        HTTPException, match="there are 2 streams, as many as there may be: delete"
    ):
        await streams.next("three", 1, GCD)
    await streams.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.json", "two.json"]


async def test_a_stream_that_does_not_learn_repeats_no_problem_after_a_restart(
    gym: AsyncReasoningGym, tmp_path: Path
) -> None:
    before, after = NamedStreams(gym, tmp_path), NamedStreams(gym, tmp_path)
    first, *_ = await before.next("one", 3, GCD)
    await before.close()
    last, *_ = await after.next("one", 3, None)
    await after.close()
    assert not {p.recipe.seed for p in first} & {p.recipe.seed for p in last}
    whole = NamedStreams(gym, tmp_path / "whole")
    assert [p.recipe for p in [*first, *last]] == [
        p.recipe for p in (await whole.next("one", 6, GCD))[0]
    ]
    await whole.close()


async def test_streams_are_disabled_without_a_folder(
    gym: AsyncReasoningGym, post: Post
) -> None:
    results = [{"recipe": {"task": "gcd", "seed": 4}, "solved": 0, "attempts": 1}]
    async with RewardService(gym, ServiceSettings(port=0)) as service:
        for route, body in (
            ("/problems", {"options": {}}),
            ("/observe", {"results": results}),
        ):
            reply = await post(route, {"stream": "a", **body}, url=service.url)
            says = "streams are disabled: set --streams FOLDER"
            assert (reply.status, reply.body["error"]) == (409, says)


async def test_a_state_that_cannot_be_written_is_logged_and_written_later(
    gym: AsyncReasoningGym, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.write_text("a file stands in its place")
    streams = NamedStreams(gym, folder, most=1)
    await streams.next("one", 1, GCD)
    for _ in range(5):
        await streams.save()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("Cannot save streams, will retry: ")
    with pytest.raises(
        HTTPException, match="cannot close stream 'one' to open another: "
    ):
        await streams.next("two", 1, GCD)
    folder.unlink()
    await streams.close()
    assert re.fullmatch(
        r"Streams are saved again after \d+ s", "".join(caplog.messages[1:])
    )
    assert [path.name for path in folder.iterdir()] == ["one.json"]


async def test_an_invalid_stream_file_is_rejected(
    gym: AsyncReasoningGym, post: Post, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "torn.json").write_text('{"options": {')
    kept = {"options": {"tasks": ["gcd"]}, "state": {"sampler": 1}, "handed_out": 0}
    (tmp_path / "odd.json").write_text(json.dumps(kept))
    kept = {"options": {"tasks": 3}, "state": {}}
    (tmp_path / "lacks.json").write_text(json.dumps(kept))
    wrong = {
        "torn": "torn.json: Invalid JSON",
        "odd": "sampler",
        "lacks": "options.tasks must be a list, got 3; handed_out is missing",
    }
    async with keeping(gym, tmp_path) as url:
        for name, what in wrong.items():
            reply = await post("/problems", {"stream": name}, url=url)
            assert reply.status == 422
            assert f"cannot start stream '{name}'" in reply.body["error"]
            assert what in reply.body["error"]
            asked = {
                "stream": name,
                "recipe": {"task": "gcd", "seed": 4},
                "completions": ["4"],
            }
            assert (await post("/score", asked, url=url)).status == 200, (
                "scores are not lost"
            )
    assert [
        line.partition(": cannot start stream ")[0] for line in caplog.messages
    ] == ["Cannot tell a stream its scores"] * 3


async def test_scores_of_an_invalid_stream_are_given_up_once_however_many_save(
    gym: AsyncReasoningGym, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = {"options": {"tasks": ["gcd"]}, "state": {"sampler": 1}, "handed_out": 0}
    (tmp_path / "odd.json").write_text(json.dumps(kept))
    streams = NamedStreams(gym, tmp_path)
    streams.report_scores(
        "odd", Recipe(task="gcd", seed=4), [Score(score=1.0, status=Status.SOLVED)]
    )
    await asyncio.gather(streams.save(), streams.save())
    await streams.close()
    assert len(caplog.messages) == 1


async def test_a_stream_that_cannot_be_read_is_kept_for_later(
    gym: AsyncReasoningGym, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = NamedStreams(gym, tmp_path)
    [problem], *_ = await stored.next("one", 1, GCD)
    await stored.close()
    kept = (tmp_path / "one.json").rename(tmp_path / "kept")
    (tmp_path / "one.json").mkdir()
    streams = NamedStreams(gym, tmp_path)
    streams.report_scores(
        "one", problem.recipe, [Score(score=1.0, status=Status.SOLVED)]
    )
    with pytest.raises(
        HTTPException, match="cannot read stream 'one': Is a directory"
    ) as refused:
        await streams.next("one", 1, None)
    assert refused.value.status_code == 503
    await streams.save()
    # It is tried again.
    assert (caplog.messages, [*streams.pending_scores]) == ([], ["one"])
    (tmp_path / "one.json").rmdir()
    kept.rename(tmp_path / "one.json")
    await streams.close()
    assert not streams.pending_scores


class FailsOnce(NamedStreams):
    """Its first save fails as where a worker is lost."""

    saves = 0
    saved_again = asyncio.Event()

    async def save(self) -> None:
        self.saves += 1
        if self.saves == 1:
            raise WorkerLostError("a generator died")
        self.saved_again.set()


async def test_streams_are_saved_though_a_save_failed(
    gym: AsyncReasoningGym, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with app._lifespan(FailsOnce(gym, tmp_path), None, pause=0.0):
        await FailsOnce.saved_again.wait()
    [message] = caplog.messages
    assert message == "Cannot save streams, will retry"


async def test_a_stream_that_is_closed_learns_what_is_scored_meanwhile(
    gym: AsyncReasoningGym, tmp_path: Path
) -> None:
    streams = NamedStreams(gym, tmp_path, most=1)
    options = StreamOptions.model_validate({**CURRICULUM, "group_size": 1})
    problems, *_ = await streams.next("one", 2, options)
    await streams.next("two", 1, options)
    solved = Score(score=1.0, status=Status.SOLVED)
    streams.report_scores("one", problems[0].recipe, [solved])
    await streams.save()
    stored = json.loads((tmp_path / "one.json").read_text())
    assert stored["handed_out"] == 1
    assert stored["state"]["ahead"][0] == problems[1].recipe.to_json()
    await streams.close()


async def test_the_same_idempotency_key_for_another_problem_is_not_a_repetition(
    gym: AsyncReasoningGym, tmp_path: Path
) -> None:
    streams = NamedStreams(gym, tmp_path)
    options = StreamOptions.model_validate({**CURRICULUM, "group_size": 1})
    problems, *_ = await streams.next("one", 2, options)
    for problem in problems:  # of two ranks, which both name their request by the step
        scores = [Score(score=1.0, status=Status.SOLVED)]
        streams.report_scores("one", problem.recipe, scores, key="step-1")
    await streams.save()
    assert json.loads((tmp_path / "one.json").read_text())["handed_out"] == 0
    await streams.close()
