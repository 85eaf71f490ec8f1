"""A reply is read from its JSON as it is read from the objects that all of it would make."""

import json
import math
from array import array
from typing import Any

import pytest
from asked_completions import ASK
from hypothesis import given
from hypothesis import strategies as st
from json_values import ODD, places, with_value, without

from reasoning_gym_environment.inference.dialects import (
    ChatText,
    ChatTokens,
    SglangGenerate,
    TrlGenerate,
    VllmCompletions,
    VllmGenerate,
)
from reasoning_gym_environment.inference.requests import Ask, Dialect, ReplyError, Sampled, read
from reasoning_gym_environment.inference.wire import parsed, read_body

PROMPT = [5, 6, 7]
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


NUMBERS = [
    *("1e400", "-1e400", "1" + "0" * 400, "-1" + "0" * 400, "NaN", "-Infinity"),
    *("-0.0", "-0", "1.0", "1e0", "1E-999", "-1e-400", "5e-324", "0.0010000001", "0.001", "1e-7"),
    *("2147483648", "-2147483649", "9223372036854775808", "18446744073709551616", "-1", "10"),
    *('"1"', '"-0.5"', '"NaN"', "true", "null", "[1]", "[]", "{}", "[[1], 2]", "01", "+1", "0x1"),
    *("1_0", "1,", ",1", "1 1", "-", ".5", "1.", "\u0661"),
]
"""What may stand where a number belongs, as it would be written."""

JUNK = {
    "a long number": "1" + "0" * 5000,
    "a very long number": "0" * 2**21,
    "a list": "[" + "0," * 2**19 + "0]",
    "nested lists": "[" * 2000 + "]" * 2000,
    "deeply nested lists": "[" * 2**20,
    "nested objects": '{"a":' * 2**18,
    "nothing": " " * 2**21,
}
"""What may stand anywhere. Python reads no integer of 5,000 digits, and no 2,000 nested lists."""

MARK = "the number"


def slowly(dialect: Dialect, body: bytes, ask: Ask) -> list[Sampled]:
    return read(dialect, parsed(body, dialect.path), ask)


def require_sound_or_refused(dialect: Dialect, body: bytes) -> None:
    samples = outcome(read_body, dialect, body, ASK)
    if isinstance(samples, str):
        return
    for tokens, logprobs, reason in samples:
        assert len(tokens) == len(logprobs) <= ASK.max_tokens
        assert all(type(token) is int and 0 <= token < ASK.vocabulary for token in tokens)
        assert all(type(p) is float and math.isfinite(p) and p <= 0 for p in logprobs)
        assert reason in ("stop", "length")


@KINDS
def test_a_sound_reply_is_read_into_arrays(kind: str) -> None:
    dialect, reply = REPLIES[kind]
    body = json.dumps(reply).replace("\\ud800", "").encode()  # of which all is read anew
    for tokens, logprobs, _ in read_body(dialect, body, ASK):
        assert isinstance(tokens, array)
        assert isinstance(logprobs, array)
        assert (tokens.typecode, logprobs.typecode) == ("i", "d")


@KINDS
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:20])
def test_whatever_stands_for_a_number_is_read_or_refused_in_the_same_words(
    kind: str, number: str
) -> None:
    dialect, sound = REPLIES[kind]
    for place in places(sound):
        marked = json.dumps(with_value(sound, place, MARK))
        body = marked.replace(f'"{MARK}"', number).encode()
        assert outcome(read_body, dialect, body, ASK) == outcome(slowly, dialect, body, ASK)


@pytest.mark.parametrize("key", ["token_ids", "token_logprobs", "finish_reason", "choices"])
@pytest.mark.parametrize("other", ["[]", "[1, 2, 3]", '"stop"', "null", "{}"])
def test_of_a_key_that_is_there_twice_the_last_counts(key: str, other: str) -> None:
    dialect, sound = REPLIES["vLLM"]
    body = json.dumps(sound).replace(f'"{key}":', f'"{key}": {other}, "{key}":').encode()
    assert outcome(read_body, dialect, body, ASK) == SAMPLES
    last = json.dumps(sound).replace(f'"{key}":', f'"{key}": 1, "?":').encode()
    assert outcome(read_body, dialect, last, ASK) == outcome(slowly, dialect, last, ASK)


@KINDS
@given(data=st.data())
def test_a_reply_that_is_cut_off_or_has_other_bytes_in_it_is_sound_or_refused(
    kind: str, data: st.DataObject
) -> None:
    dialect, sound = REPLIES[kind]
    body = json.dumps(sound, ensure_ascii=data.draw(st.booleans())).encode(errors="surrogatepass")
    begin = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(begin, len(body)))
    inserted = data.draw(
        st.binary(max_size=4) | st.sampled_from([b"0", b",", b"]", b"\xff", b"e9"])
    )
    require_sound_or_refused(dialect, body[:begin])
    require_sound_or_refused(dialect, body[:begin] + inserted + body[begin:])
    require_sound_or_refused(dialect, body[:begin] + inserted + body[end:])


@KINDS
@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_junk_in_any_place_is_sound_or_refused(kind: str, junk: str) -> None:
    dialect, sound = REPLIES[kind]
    assert isinstance(outcome(read_body, dialect, junk.encode(), ASK), str)
    for place in [*places(sound)][:: 1 if len(junk) < 10_000 else 7]:
        marked = json.dumps(with_value(sound, place, MARK))
        require_sound_or_refused(dialect, marked.replace(f'"{MARK}"', junk).encode())
