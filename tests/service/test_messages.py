"""Other frameworks' requests, limits on text, and replies for unscored completions."""

from typing import Any

import pytest
from fastapi import HTTPException
from reward_requests import Post, row
from worker_stock import WorkerStock

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.records import Score, Status
from reasoning_gym_environment.service import endpoints
from reasoning_gym_environment.service._messages import MAX_CHARACTERS
from reasoning_gym_environment.service._targets import nemo_text, read_json
from reasoning_gym_environment.service.app import RewardService, ServiceSettings
from reasoning_gym_environment.service.endpoints import reward_of
from reasoning_gym_environment.util.retries import RetryPolicy


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ([], ""),
        ([{"type": "message", "content": "four"}], "four"),
        ([{"role": "assistant", "content": "four"}], "four"),
        ([{"type": "function_call", "arguments": "{}"}], ""),
        ([{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}], ""),
        (
            [
                {"type": "message", "content": [{"type": "output_text", "text": t}]}
                for t in "ab"
            ],
            "ab",
        ),
    ],
)
def test_response_text_is_the_text_of_the_assistants_messages(
    output: list[dict[str, Any]], text: str
) -> None:
    assert nemo_text(output) == text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (4, "response.output: a message's content must be a string or a list, got 4"),
        ([{"type": "output_text"}], "an output_text's text must be a string, got None"),
    ],
)
def test_a_response_with_invalid_content_is_rejected(content: Any, says: str) -> None:
    with pytest.raises(HTTPException, match=says):
        nemo_text([{"type": "message", "content": content}])


TOO_LONG = "x" * (MAX_CHARACTERS + 1)


SAYS_SO = "String should have at most 524288 characters, got 'xxx"


@pytest.mark.parametrize(
    ("output", "named"),
    [
        ([{"role": "model", "content": "4"}], "model"),
        ([{"type": "answer", "content": "4"}], "answer"),
        ([{"content": [{"type": "markdown", "text": "4"}]}], "markdown"),
        ([{"type": ["a", "list"], "content": "4"}], "a"),
    ],
)
def test_a_response_whose_words_are_all_unknown_is_refused_and_not_empty(
    output: list[dict[str, Any]], named: str
) -> None:
    with pytest.raises(HTTPException) as raised:
        nemo_text(output)
    assert raised.value.status_code == 422
    assert named in raised.value.detail
    known = {"type": "message", "role": "assistant", "content": "5"}
    assert nemo_text([*output, known]) == "5"


def test_a_response_without_a_reply_is_empty() -> None:
    thought = {
        "type": "reasoning",
        "content": [{"type": "reasoning_text", "text": "?"}],
    }
    call = {"type": "function_call", "name": "f", "arguments": "{}"}
    refusal = {"content": [{"type": "refusal", "refusal": "no", "text": "no"}]}
    assert nemo_text([thought, call, refusal]) == ""


@pytest.mark.asyncio(loop_scope="session")
async def test_a_completion_that_is_too_long_is_rejected(
    gym: AsyncReasoningGym, post: Post
) -> None:
    async with RewardService(gym, ServiceSettings(port=0)) as service:
        for route, field, fields in (
            ("/score", "completions.0", {"completions": [TOO_LONG]}),
            ("/slime", "response", {"response": TOO_LONG, "label": {}}),
            (
                "/openrlhf",
                "query.0",
                {"query": [TOO_LONG], "prompts": [""], "labels": [{}]},
            ),
        ):
            reply = await post(route, fields, service.url)
            assert reply.status == 422
            assert reply.body["error"].startswith(f"{field}: {SAYS_SO}")


def test_a_response_that_is_too_long_is_rejected_with_the_same_message() -> None:
    half = {"type": "output_text", "text": TOO_LONG[: MAX_CHARACTERS // 2 + 1]}
    whole = {"type": "message", "content": [half, half]}
    with pytest.raises(HTTPException) as refused:
        nemo_text([whole])
    assert refused.value.status_code == 422
    assert refused.value.detail.startswith(f"response.output: {SAYS_SO}")


def test_a_text_that_looks_like_a_large_number_is_read() -> None:
    assert read_json('["1e999", "Infinity"]', "it") == ["1e999", "Infinity"]


def test_an_unscored_reward_is_503_with_retry_after() -> None:
    score = Score(score=None, status=Status.UNSCORED, detail="killed from outside")
    with pytest.raises(
        HTTPException, match="completion now: killed from outside"
    ) as refused:
        reward_of(score)
    assert (refused.value.status_code, refused.value.headers) == (
        503,
        {"Retry-After": "1"},
    )


@pytest.mark.asyncio(loop_scope="session")
async def test_an_unscored_response_is_masked(
    stock: WorkerStock, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "RETRIES", RetryPolicy(attempts=3, first_pause=0.01))
    # this item takes a second of work, and a process is looked at each tenth of one
    sizes = {"min_board_size": 8, "max_board_size": 9}
    recipe = {"task": "futoshiki", "seed": 9, "parameters": sizes}
    async with (
        AsyncReasoningGym(
            processes=1, generation_timeout=0.0001, start_worker=stock.lend
        ) as gym,
        RewardService(gym, ServiceSettings(port=0)) as service,
    ):
        reply = await post(
            "/verify",
            row(
                "",
                "<answer>No</answer>",
                recipe=recipe,
                instance_config={"agent": 1},
            ),
            service.url,
        )
        assert (reply.status, reply.body["status"]) == (200, "unscored")
        assert (reply.body["reward"], reply.body["mask_sample"]) == (0.0, True)
        assert reply.body["instance_config"] == {"agent": 1, "mask_sample": True}
        assert reply.body["failure_kind"] == "verifier_error"
        assert "futoshiki: " in reply.body["failure_reason"]
        reply = await post("/slime", {"response": "", "label": recipe}, service.url)
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
        registry = service.app.state.registry
        answers = registry.get_sample_value(
            "reasoning_gym_answers_total", {"status": "unscored"}
        )
        assert answers == 3 + 3, "each is tried three times"
