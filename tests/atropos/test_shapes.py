"""A reply is read from its JSON as it is read from the objects that all of it would make."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_values import ODD, places, with_value, without

from reasoning_gym_environment.atropos.dialects import (
    ChatText,
    ChatTokens,
    SglangGenerate,
    TrlGenerate,
    VllmCompletions,
    VllmGenerate,
)
from reasoning_gym_environment.atropos.replies import Ask, Dialect, ReplyError, Sampled, read
from reasoning_gym_environment.atropos.shapes import parsed, read_body

PROMPT = [5, 6, 7]
ASK = Ask(
    model="m",
    prompt=tuple(PROMPT),
    messages=[{"role": "user", "content": "?"}],
    n=2,
    max_tokens=4,
    temperature=0.7,
    top_p=1.0,
    vocabulary=10,
    stops=frozenset({0}),
)
SAMPLES = [
    Sampled([1, 2, 0], [-0.5, 0.0, -1.5e-7], "stop"),
    Sampled([3, 4], [-2.0, -1.0], "length"),
]


def vllm(sample: Sampled) -> dict[str, Any]:
    logprobs = {"token_logprobs": sample.logprobs, "tokens": ["token_id:1"], "top_logprobs": None}
    return {
        "text": "\u65e5 \ud800",
        "token_ids": sample.tokens,
        "logprobs": logprobs,
        "finish_reason": sample.finish_reason,
        "prompt_token_ids": PROMPT,
    }


def chat(sample: Sampled, name: str) -> dict[str, Any]:
    content = [{"token": "?", "logprob": p, "top_logprobs": []} for p in sample.logprobs]
    return {
        "message": {"role": "assistant", "content": "??"},
        "logprobs": {"content": content},
        "finish_reason": sample.finish_reason,
        name: sample.tokens,
    }


def sglang(sample: Sampled) -> dict[str, Any]:
    entries = [[p, t, None] for t, p in zip(sample.tokens, sample.logprobs, strict=True)]
    reason = {"type": sample.finish_reason, "matched": 0}
    return {"text": "?", "meta_info": {"output_token_logprobs": entries, "finish_reason": reason}}


def generated(sample: Sampled) -> list[Any]:
    return [[{str(t): p}] for t, p in zip(sample.tokens, sample.logprobs, strict=True)]


REPLIES: dict[str, tuple[Dialect, Any]] = {
    "vLLM": (VllmCompletions(), {"id": 1, "choices": [vllm(s) for s in SAMPLES]}),
    "atroposlib": (
        VllmGenerate(),
        {
            "logprobs": [generated(s) for s in SAMPLES],
            "finish_reasons": [s.finish_reason for s in SAMPLES],
        },
    ),
    "SGLang": (SglangGenerate(), [sglang(s) for s in SAMPLES]),
    "TRL": (
        TrlGenerate(),
        {
            "prompt_ids": [PROMPT],
            "completion_ids": [s.tokens for s in SAMPLES],
            "logprobs": [[[p] for p in s.logprobs] for s in SAMPLES],
        },
    ),
    "a chat of vLLM": (
        ChatTokens(),
        {"prompt_token_ids": PROMPT, "choices": [chat(s, "token_ids") for s in SAMPLES]},
    ),
    "a chat of SGLang": (
        ChatTokens(),
        {
            "choices": [
                {**chat(s, "response_token_ids"), "prompt_token_ids": PROMPT} for s in SAMPLES
            ]
        },
    ),
}
KINDS = pytest.mark.parametrize("kind", REPLIES)


def lists(samples: list[Sampled]) -> list[Sampled]:
    """The same with lists in the place of arrays, which equal no list."""
    return [Sampled(list(tokens), list(logprobs), reason) for tokens, logprobs, reason in samples]


def outcome(reading: Any, *arguments: Any) -> Any:
    """What was read, or the words of the refusal."""
    try:
        return lists(reading(*arguments))
    except ReplyError as error:
        return str(error)


@KINDS
def test_a_sound_reply_is_read(kind: str) -> None:
    dialect, reply = REPLIES[kind]
    assert lists(read_body(dialect, json.dumps(reply).encode(), ASK)) == SAMPLES


def test_one_completion_of_sglang_is_no_list() -> None:
    body = json.dumps(sglang(SAMPLES[0])).encode()
    assert lists(read_body(SglangGenerate(), body, ASK)) == SAMPLES[:1]


@KINDS
@given(data=st.data())
def test_with_anything_in_any_place_it_is_read_or_refused_in_the_same_words(
    kind: str, data: st.DataObject
) -> None:
    dialect, sound = REPLIES[kind]
    place = data.draw(st.sampled_from(list(places(sound))))
    for reply in (with_value(sound, place, data.draw(ODD)), without(sound, place)):
        body = json.dumps(reply).encode()
        slow = outcome(read, dialect, json.loads(body), ASK)
        assert outcome(read_body, dialect, body, ASK) == slow


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400", "1" + "0" * 400, "true", "null"])
def test_what_is_no_logprob_is_named(number: str) -> None:
    body = json.dumps(REPLIES["vLLM"][1]).replace("-1.5e-07", number).encode()
    said = outcome(read_body, VllmCompletions(), body, ASK)
    assert "no logprob" in said or "OverflowError" in said


@pytest.mark.parametrize("dialect", [VllmCompletions(), ChatText()])
@pytest.mark.parametrize("body", [b"<h1>Bad gateway</h1>", b'{"choices": [', b"\xff\xfe\xfa"])
def test_what_is_no_json_is_shown(dialect: Any, body: bytes) -> None:
    said = outcome(read_body, dialect, body, ASK)
    assert said.startswith(f"the reply to {dialect.path} is no JSON: ")


def test_all_of_a_reply_is_parsed_where_all_is_wanted() -> None:
    assert parsed(b'{"a": [NaN, "\\ud800", 123456789012345678901234567890]}', "/")["a"][1:] == [
        "\ud800",
        123456789012345678901234567890,
    ]
