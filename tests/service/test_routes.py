"""Each route's reply in its framework's format, and the error messages."""

import asyncio
import json
import shlex
from asyncio.subprocess import PIPE
from importlib.metadata import version
from typing import Any

import aiohttp
import pytest
from page_blocks import ROOT, blocks
from prometheus_client.parser import text_string_to_metric_families
from reward_requests import Post, require_rejections, right, row, spoken

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.records import Problem
from reasoning_gym_environment.service.app import RewardService

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_completions_are_scored_as_in_python_for_a_recipe_or_its_json(
    post: Post, gym: AsyncReasoningGym, problem: Problem
) -> None:
    texts = [right(problem), "It is four.", "<answer>-1</answer>"]
    recipe = problem.recipe.to_json()
    reply = await post("/score", {"recipe": recipe, "completions": texts})
    scores = [
        s.to_json() for s in await gym.score_many((problem, text) for text in texts)
    ]
    assert reply.status == 200
    for given, expected in zip(reply.body["scores"], scores, strict=True):
        assert {**given, "seconds": 0} == {**expected, "seconds": 0}
    assert [s["status"] for s in reply.body["scores"]] == [
        "solved",
        "no_answer",
        "wrong",
    ]
    reply = await post(
        "/score", {"recipe": json.dumps(recipe), "completions": texts[:1]}
    )
    assert reply.body["scores"][0]["score"] == 1.0


async def test_a_nemo_gym_row_comes_back_with_its_reward(
    post: Post, problem: Problem
) -> None:
    fields = {
        "recipe": problem.recipe.to_json(),
        "question": problem.question,
        "agent_ref": {},
    }
    asked = row(problem.question, right(problem), **fields)
    reply = await post("/verify", asked)
    assert reply.status == 200
    assert reply.body == {
        **asked,
        "reward": 1.0,
        "score": 1.0,
        "status": "solved",
        "detail": "",
        "mask_sample": False,
        "instance_config": {"mask_sample": False},
        "failure_kind": None,
        "failure_reason": None,
        "extracted_answer": problem.oracle,
        "task_name": "gcd",
    }
    wrong = await post("/verify", {**asked, "response": spoken("four")})
    assert (wrong.body["reward"], wrong.body["status"]) == (0.0, "no_answer")
    assert (wrong.body["extracted_answer"], wrong.body["mask_sample"]) == (None, False)


async def test_a_run_of_nemo_gym_begins_and_ends_its_sessions(
    post: Post, service: RewardService, session: aiohttp.ClientSession
) -> None:
    """An agent seeds with its row, an environment server with a session that it names."""
    seeded = await post("/seed_session", {"anything": 1})
    assert (seeded.status, seeded.body) == (200, {})
    assert "set-cookie" not in seeded.headers
    named = {"resources_session_id": "a", "episode_id": {"rollout_id": "b"}}
    task = {"task_id": {"taskset": "c", "task_id": "d"}, "task_data": {}}
    for body in ({**named, **task}, named):
        for route in ("/seed_session", "/close_session", "/close_session"):
            reply = await post(route, body)
            assert (reply.status, reply.body) == (200, {"resources_session_id": "a"})
            has_cookie = "set-cookie" in reply.headers
            assert has_cookie == (route == "/seed_session")
    async with session.get(f"{service.url}/reverify_mode") as response:
        assert (response.status, await response.json()) == (200, "stateless")


async def test_the_statistics_of_a_run_of_nemo_gym_leave_masked_rollouts_out(
    post: Post,
) -> None:
    rollouts = [
        {
            "_ng_task_index": 0,
            "_ng_rollout_index": 0,
            "reward": 1.0,
            "status": "solved",
        },
        {"_ng_task_index": 0, "_ng_rollout_index": 1, "reward": 0.0, "status": "wrong"},
        {
            "_ng_task_index": 0,
            "_ng_rollout_index": 2,
            "reward": 0.0,
            "mask_sample": True,
        },
        {
            "_ng_task_index": 4,
            "_ng_rollout_index": 0,
            "reward": 1.0,
            "mask_sample": False,
        },
        {
            "_ng_task_index": 5,
            "_ng_rollout_index": 0,
            "reward": 0.0,
            "mask_sample": True,
        },
    ]
    reply = await post("/aggregate_metrics", {"verify_responses": rollouts})
    assert reply.status == 200
    coverage = {
        "coverage/measured_rollouts": 3,
        "coverage/masked_rollouts": 2,
        "coverage/measured_tasks": 2,
        "coverage/fully_masked_tasks": 1,
    }
    assert reply.body["key_metrics"] == {
        "mean/reward": pytest.approx(2 / 3),
        **coverage,
    }
    assert reply.body["agent_metrics"] == {
        **reply.body["key_metrics"],
        "max/reward": 1.0,
        "min/reward": 0.0,
        "median/reward": 1.0,
    }
    first, second = reply.body["group_level_metrics"]
    assert (first["_ng_task_index"], first["mean/reward"]) == (0, 0.5)
    assert (first["num_rollouts"], second["num_rollouts"]) == (2, 1)
    assert second["_ng_task_index"] == 4
    nothing = await post("/aggregate_metrics", {"verify_responses": []})
    assert nothing.body == {
        "agent_metrics": {},
        "key_metrics": {},
        "group_level_metrics": [],
    }


async def test_numbers_that_no_statistic_can_hold_are_left_out(post: Post) -> None:
    rollouts = [
        {"reward": 1e308, "score": 1.0},
        {"reward": 1e308, "_ng_task_index": []},
    ]
    reply = await post("/aggregate_metrics", {"verify_responses": rollouts})
    assert reply.body["key_metrics"] == {"mean/score": 1.0}
    assert len(reply.body["group_level_metrics"]) == 1


async def test_a_row_with_another_question_is_rejected(
    post: Post, problem: Problem
) -> None:
    asked = row(
        problem.question, "", recipe=problem.recipe.to_json(), question="What is 2 + 2?"
    )
    reply = await post("/verify", asked)
    assert reply.status == 422
    assert (
        "the row 'What is 2 + 2?': the row is of another version" in reply.body["error"]
    )


async def test_openrlhf_gets_a_reward_for_each_query(
    post: Post, problem: Problem
) -> None:
    prompt = "Answer as <answer>…</answer>."
    label = json.dumps(problem.recipe.to_json())
    texts = [f"<s>{prompt} {right(problem)}<|im_end|>", f"<s>{prompt} four"]
    asked = {"query": texts, "prompts": [prompt] * 2, "labels": [label] * 2}
    reply = await post("/openrlhf", asked)
    assert (reply.status, reply.body) == (200, {"rewards": [1.0, 0.0]})
    answer = f"<answer>{problem.oracle}</answer>"
    thought = f"{prompt}<think>\nI try {answer}"
    texts = [thought, f"{thought}</think>{answer}"]
    opened = {**asked, "query": texts, "prompts": [f"{prompt}<think>\n"] * 2}
    assert (await post("/openrlhf", opened)).body == {"rewards": [0.0, 1.0]}
    none = await post("/openrlhf", {"query": [], "prompts": [], "labels": []})
    assert (none.status, none.body) == (200, {"rewards": []})


INVALID_OPENRLHF = """
422 /openrlhf {"query": ["p c"], "prompts": [], "labels": [{"task": "gcd", "seed": 2}]}
> prompts must have one value per query (1), got 0
422 /openrlhf {"query": ["p c"], "prompts": ["p"], "labels": []}
> labels must have one value per query (1), got 0
422 /openrlhf {"query": ["p c"], "prompts": ["other"], "labels": [{"task": "gcd", "seed": 2}]}
> query.0 does not contain prompts.0, 'other'
422 /openrlhf {"query": ["p c"], "prompts": ["p"], "labels": ["4"]}
> labels.0 must be a recipe or an entry, as JSON, got 4
400 /openrlhf {"query": ["p c"], "prompts": ["p"], "labels": ["four"]}
> labels.0 is not valid JSON
422 /openrlhf {"query": "one", "prompts": ["p"], "labels": [{"task": "gcd", "seed": 2}]}
> query: Input should be a valid list, got 'one'
"""


async def test_an_invalid_openrlhf_request_is_rejected(post: Post) -> None:
    await require_rejections(post, INVALID_OPENRLHF)


async def test_slime_gets_a_number(post: Post, problem: Problem) -> None:
    label = json.dumps(problem.recipe.to_json())
    asked = {"prompt": [{"role": "user", "content": "?"}], "response": right(problem)}
    assert (await post("/slime", {**asked, "label": label})).body == 1.0
    assert (await post("/slime", {**asked, "response": "", "label": label})).body == 0.0
    asked |= {
        "prompt": "<think>\n",
        "response": f"<answer>{problem.oracle}</answer> hmm",
    }
    assert (await post("/slime", {**asked, "label": label})).body == 0.0


async def test_the_root_says_what_this_is_and_health_that_its_workers_are_ready(
    service: RewardService, session: aiohttp.ClientSession, gym: AsyncReasoningGym
) -> None:
    async with session.get(f"{service.url}/health") as response:
        assert response.status == 200
        assert await response.json() == {
            "status": "ready",
            "sandbox_gaps": gym.missing_protections,
            "modules": {},
        }
    async with session.get(f"{service.url}/") as response:
        described = await response.json()
    assert described["service"] == "reasoning-gym rewards"
    assert described["version"] == version("reasoning-gym-environment")
    assert described["routes"]["POST /score"] == "Score completions of one problem."
    assert described["routes"]["GET /openapi.json"] == "Return this document."


async def test_the_request_that_the_page_begins_with_gets_its_reply(
    service: RewardService,
) -> None:
    command, shown = (block.text for block in blocks(ROOT / "docs/rewards.md")[1:3])
    words = shlex.split(command.replace("http://127.0.0.1:8080", service.url))
    curl = await asyncio.create_subprocess_exec(*words, stdout=PIPE)
    replied, _ = await curl.communicate()

    def timeless(reply: str | bytes) -> list[dict[str, Any]]:
        return [{**score, "seconds": 0} for score in json.loads(reply)["scores"]]

    assert timeless(replied) == timeless(shown)


async def test_prometheus_parses_the_metrics(
    post: Post, service: RewardService, session: aiohttp.ClientSession, problem: Problem
) -> None:
    await post(
        "/score", {"recipe": problem.recipe.to_json(), "completions": [right(problem)]}
    )
    await post("/nowhere", {})
    async with session.get(f"{service.url}/metrics") as response:
        assert response.content_type == "text/plain"
        families = {
            f.name: f for f in text_string_to_metric_families(await response.text())
        }
    samples = families["reasoning_gym_requests"].samples
    requests = {(s.labels["route"], s.labels["code"]) for s in samples}
    assert {("/score", "200"), ("none", "404")} <= requests
    solved = [
        s.value for s in families["reasoning_gym_answers"].samples if "solved" in str(s)
    ]
    assert max(solved) >= 1
    assert families["reasoning_gym_request_seconds"].type == "histogram"
    assert [s.value for s in families["reasoning_gym_ready"].samples] == [1]
    assert [s.value for s in families["reasoning_gym_worker_restarts"].samples] == [0]
    assert [s.value for s in families["reasoning_gym_sandbox_gaps"].samples] == [0]


INVALID = """
422 /score {"completions": ["4"]}
> give exactly one of recipe and entry
422 /score {"recipe": {"task": "gcd", "seed": 2}, "completions": []}
> completions: List should have at least 1 item
422 /score {"recipe": {"task": "gcd", "seed": 2}, "completions": [4]}
> completions.0: Input should be a valid string
422 /score {"recipe": {"task": "gcd", "seed": 2}, "completion": "4"}
> completions: Field required
422 /score {"recipe": {"task": "gcd", "seed": 2}, "completions": ["4"], "tokens": 1}
> tokens: Extra inputs are not permitted, got 1
400 /score {"recipe": "{", "completions": ["4"]}
> recipe is not valid JSON: EOF while parsing
422 /score {"recipe": [], "completions": ["4"]}
> invalid recipe: a recipe must be an object, got []
422 /score {"recipe": {"task": "gcd", "seed": -1}, "completions": ["4"]}
> seed must be an integer in [0, 2**53), got -1
422 /score {"recipe": {"task": "gdc", "seed": 2}, "completions": ["4"]}
> cannot generate its problem: gdc: UnknownTaskError: task: unknown task 'gdc'; did you mean gcd?
422 /score {"recipe": {"task": "gcd", "seed": 2, "parameters": {"max": 9}}, "completions": ["4"]}
> unknown parameter 'max'; the task has min_numbers, max_numbers, min_value, max_value
422 /score {"recipe": {"task": "gcd", "seed": 2, "level": 3}, "completions": ["4"]}
> level 3 of gcd lacks its parameters: take the recipe of a problem made at that level
422 /score {"recipe": {"task": "simple_integration", "seed": 2, "parameters": {"symbols":
["__import__('os').system('true')"]}}, "completions": ["<answer>x</answer>"]}
> symbols can't be ["__import__('os').system('true')"]: a symbol is a letter
"""


async def test_an_invalid_request_is_rejected(post: Post) -> None:
    await require_rejections(post, INVALID)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "the body is not valid JSON: EOF while parsing"),
        (b'{"a": NaN}', 400, "the body is not valid JSON: "),
        (b'{"a": 1e999}', 400, "the body has a number that is too large"),
        (b'[[{"a": [-10e308]}]]', 400, "the body has a number that is too large"),
        (b"[" + b"9" * 400 + b".0]", 400, "the body has a number that is too large"),
        (
            b"[" * 300 + b"]" * 300,
            400,
            "the body is not valid JSON: recursion limit exceeded",
        ),
        (b"\x80\x04K\x01.", 400, "the body is not valid JSON: "),
        (b'"' + b"x" * 2**19 + b'"', 413, "the body is larger than the 524288 bytes"),
    ],
)
async def test_invalid_json_is_rejected(
    service: RewardService,
    session: aiohttp.ClientSession,
    body: bytes,
    status: int,
    says: str,
) -> None:
    headers = {"Content-Type": "application/json"}
    async with session.post(
        f"{service.url}/score", data=body, headers=headers
    ) as response:
        assert response.status == status
        assert says in (await response.json())["error"]


async def test_other_content_types_routes_and_methods_get_json_errors(
    service: RewardService, session: aiohttp.ClientSession
) -> None:
    async with session.post(f"{service.url}/score", data="{}") as response:
        assert response.status == 415
        assert (
            "must be application/json, got text/plain"
            in (await response.json())["error"]
        )
    async with session.get(f"{service.url}/score") as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
        assert (await response.json()) == {"error": "GET /score: Method Not Allowed"}
    async with session.post(f"{service.url}/nowhere", json={}) as response:
        assert response.status == 404
        assert await response.json() == {"error": "POST /nowhere: Not Found"}
