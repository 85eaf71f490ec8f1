"""Replies are decoded into valid completions or refused, as by a reference decoder.

The reference decoder checks all of a reply's JSON, number by number.
"""

import json
import math
import re
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from asked_completions import REQUEST
from hypothesis import given
from hypothesis import strategies as st
from json_values import ODD, places, with_value, without
from reference_decoder import decode_by_reference

from reasoning_gym_environment.inference.dialects import (
    ChatText,
    ChatTokens,
    Dialect,
    GenerationRequest,
    SglangGenerate,
    TextSample,
    VllmCompletions,
    parse,
)
from reasoning_gym_environment.inference.errors import ReplyError
from reasoning_gym_environment.inference.finish_reasons import read_ending

PROMPT = [5, 6, 7]


class Expected(NamedTuple):
    """A sample with lists in the place of arrays."""

    tokens: list[int]
    logprobs: list[float]
    finish_reason: str


SAMPLES = [
    Expected([1, 2, 0], [-0.5, 0.0, -1.5e-7], "stop"),
    Expected([3, 4], [-2.0, -1.0], "length"),
]


def vllm(sample: Expected) -> dict[str, Any]:
    logprobs = {
        "token_logprobs": sample.logprobs,
        "tokens": ["token_id:1"],
        "top_logprobs": None,
    }
    return {
        "text": "\u65e5 \ud800",
        "token_ids": sample.tokens,
        "logprobs": logprobs,
        "finish_reason": sample.finish_reason,
        "prompt_token_ids": PROMPT,
    }


def chat(sample: Expected, name: str) -> dict[str, Any]:
    content = [
        {"token": "?", "logprob": p, "top_logprobs": []} for p in sample.logprobs
    ]
    return {
        "message": {"role": "assistant", "content": "??"},
        "logprobs": {"content": content},
        "finish_reason": sample.finish_reason,
        name: sample.tokens,
    }


def sglang_chat(sample: Expected) -> dict[str, Any]:
    """A choice of SGLang 0.5.23: the prompt in each, and another name for the ids."""
    return {**chat(sample, "response_token_ids"), "prompt_token_ids": PROMPT}


def sglang(sample: Expected) -> dict[str, Any]:
    entries = [
        [p, t, None] for t, p in zip(sample.tokens, sample.logprobs, strict=True)
    ]
    reason = {"type": sample.finish_reason, "matched": 0}
    return {
        "text": "?",
        "meta_info": {"output_token_logprobs": entries, "finish_reason": reason},
    }


REPLIES: dict[str, tuple[Dialect, Any]] = {
    "vLLM": (VllmCompletions(), {"id": 1, "choices": [vllm(s) for s in SAMPLES]}),
    "SGLang": (SglangGenerate(), [sglang(s) for s in SAMPLES]),
    "a chat of vLLM": (
        ChatTokens(),
        {
            "prompt_token_ids": PROMPT,
            "choices": [chat(s, "token_ids") for s in SAMPLES],
        },
    ),
    "a chat of SGLang": (ChatTokens(), {"choices": [sglang_chat(s) for s in SAMPLES]}),
}
KINDS = pytest.mark.parametrize("kind", REPLIES)


def outcome(dialect: Dialect, body: bytes, request: GenerationRequest = REQUEST) -> Any:
    """The samples, or None for a refusal."""
    try:
        samples = dialect.samples(body, request)
    except ReplyError:
        return None
    return [
        Expected(list(s.tokens), list(s.logprobs), s.ending.reason) for s in samples
    ]


def refusal(dialect: Any, body: bytes, request: GenerationRequest = REQUEST) -> str:
    with pytest.raises(ReplyError) as raised:
        dialect.samples(body, request)
    return str(raised.value)


@KINDS
def test_a_valid_reply_is_decoded_into_arrays(kind: str) -> None:
    dialect, reply = REPLIES[kind]
    body = json.dumps(reply).encode()
    assert outcome(dialect, body) == SAMPLES
    for tokens, logprobs, *_ in dialect.samples(body, REQUEST):
        assert isinstance(tokens, array)
        assert isinstance(logprobs, array)
        assert (tokens.typecode, logprobs.typecode) == ("i", "d")


def test_sglang_replies_with_an_object_for_one_completion() -> None:
    body = json.dumps(sglang(SAMPLES[0])).encode()
    assert outcome(SglangGenerate(), body) == SAMPLES[:1]


@KINDS
@given(data=st.data())
def test_any_value_anywhere_is_read_as_by_the_reference(
    kind: str, data: st.DataObject
) -> None:
    dialect, sound = REPLIES[kind]
    place = data.draw(st.sampled_from(list(places(sound))))
    for reply in (with_value(sound, place, data.draw(ODD)), without(sound, place)):
        body = json.dumps(reply).encode()
        assert outcome(dialect, body) == decode_by_reference(dialect, body, REQUEST)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        *[("NaN", "nan is not a logprob"), ("-Infinity", "-inf is not a logprob")],
        *[("1e400", "inf is not a logprob"), ("0.1", "0.1 is not a logprob")],
        *[
            (number, "$.choices[0].logprobs.token_logprobs[2]")
            for number in ("true", "null", '"-0.5"', "1" + "0" * 400)
        ],
    ],
    ids=lambda number: number[:9],
)
def test_an_invalid_logprob_is_named(number: str, said: str) -> None:
    body = json.dumps(REPLIES["vLLM"][1]).replace("-1.5e-07", number).encode()
    assert said in refusal(VllmCompletions(), body)


def test_an_id_beyond_the_vocabulary_cuts_its_completion_alone() -> None:
    sound = json.dumps(REPLIES["vLLM"][1])
    cut = sound.replace("[3, 4]", "[3, 10]").encode()
    whole = VllmCompletions().samples(sound.encode(), REQUEST)
    first, second = VllmCompletions().samples(cut, REQUEST)
    assert first == whole[0]
    assert list(second.tokens) == [3]
    assert second.logprobs == whole[1].logprobs[:1]
    assert second.ending.reason == "invalid_token"


def test_the_word_of_the_server_stays_beside_the_reason() -> None:
    sound = json.dumps(REPLIES["vLLM"][1])
    for word, reason in {
        "repetition": "repetition",
        "odd <reason>\n" * 9: "stop",
    }.items():
        body = sound.replace('"stop"', json.dumps(word)).encode()
        ending = VllmCompletions().samples(body, REQUEST)[0].ending
        assert (ending.reason, ending.word) == (reason, re.sub(r"\W", "_", word)[:40])


def test_an_invalid_token_id_is_named() -> None:
    sound = json.dumps(REPLIES["vLLM"][1])
    assert "-1 is not a token id" in refusal(
        VllmCompletions(), sound.replace("[3, 4]", "[3, -1]").encode()
    )
    assert "Expected `int`, got `str` - at `$.choices[1].token_ids[1]`" in refusal(
        VllmCompletions(), sound.replace("[3, 4]", '[3, "4"]').encode()
    )


@pytest.mark.parametrize("dialect", [VllmCompletions(), ChatText()])
@pytest.mark.parametrize(
    "body", [b"<h1>Bad gateway</h1>", b'{"choices": [', b"\xff\xfe\xfa"]
)
def test_invalid_json_is_quoted(dialect: Any, body: bytes) -> None:
    said = f"the reply to {dialect.name} is not valid JSON: "
    assert refusal(dialect, body).startswith(said)


def test_parse_accepts_nan_surrogates_and_big_integers() -> None:
    assert parse(b'{"a": [NaN, "\\ud800", 123456789012345678901234567890]}', "/")["a"][
        1:
    ] == [
        "\ud800",
        123456789012345678901234567890,
    ]


def test_a_text_keeps_its_thought_and_unpaired_surrogates() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "2 + 2"}]}
    choices = [
        {"message": {"content": "half \ud83d"}, "finish_reason": "length"},
        {"message": {"content": None, "reasoning_content": "hm"}},
        {"message": {"content": "4", "reasoning": "2 + 2"}, "finish_reason": "stop"},
        {"message": {"content": [thinking, {"type": "text", "text": "4"}]}},
    ]
    assert ChatText().samples(json.dumps({"choices": choices}).encode(), REQUEST) == [
        TextSample("half \ud83d", None, read_ending("length")),
        TextSample("", "hm", read_ending(None)),
        TextSample("4", "2 + 2", read_ending("stop")),
        TextSample("4", "2 + 2", read_ending(None)),
    ]


TEXT_PART = {"type": "text", "text": "4"}


@pytest.mark.parametrize(
    ("parts", "reply", "thought", "unknown"),
    [
        ([{"text": "4"}], "4", None, ()),
        ([{"type": "output_text", "text": "4"}], "4", None, ()),
        ([{"type": "reasoning", "text": "2 + 2"}, TEXT_PART], "4", "2 + 2", ()),
        ([{"type": "thinking", "thinking": "2 + 2"}, TEXT_PART], "4", "2 + 2", ()),
        (
            [{"type": "reasoning", "summary": [{"text": "2 + 2"}]}, TEXT_PART],
            "4",
            "2 + 2",
            (),
        ),
        ([{"type": "image_url", "image_url": "x"}, TEXT_PART], "4", None, ()),
        ([{"type": "musing", "text": "5?"}, TEXT_PART], "4", None, ("musing",)),
        ([{"type": "answer", "text": "4"}], "4", None, ("answer",)),
    ],
)
def test_only_parts_of_a_reply_are_read_as_one(
    parts: Any, reply: str, thought: str | None, unknown: tuple[str, ...]
) -> None:
    """A word of tomorrow changes no reply that is known, and makes none empty."""
    body = json.dumps({"choices": [{"message": {"content": parts}}]}).encode()
    [sample] = ChatText().samples(body, REQUEST)
    assert (sample.content, sample.reasoning) == (reply, thought)
    assert sample.unknown_parts == unknown


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"error": {"message": "Overloaded", "code": 502}}, "is invalid: Overloaded"),
        ({"choices": []}, "is invalid: it has no choices"),
        ({}, "is invalid: it has no choices"),
        (
            {"choices": [{"message": {"content": "4"}, "finish_reason": "error"}]},
            "a completion has the finish reason 'error'",
        ),
    ],
)
def test_a_text_reply_without_whole_completions_says_why(reply: Any, said: str) -> None:
    with pytest.raises(ReplyError, match=said):
        ChatText().samples(json.dumps(reply).encode(), REQUEST)


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 10}, [(7, 8), (7, 2)]),
        ({"prompt_tokens": 7, "completion_tokens": 0}, [(7, 0), (7, 0)]),
        ({"prompt_tokens": 7}, [None, None]),
        ({}, [None, None]),
        (None, [None, None]),
    ],
)
def test_usage_is_divided_in_proportion_to_the_texts(
    usage: Any, counts: list[Any]
) -> None:
    messages = [{"content": "1234", "reasoning": "1234"}, {"content": "12"}]
    reply = {"choices": [{"message": message} for message in messages], "usage": usage}
    samples = ChatText().samples(json.dumps(reply).encode(), REQUEST)
    assert [sample.usage for sample in samples] == counts


NUMBERS = [
    *("1e400", "-1e400", "1" + "0" * 400, "-1" + "0" * 400, "NaN", "-Infinity"),
    *(
        "-0.0",
        "-0",
        "1.0",
        "1e0",
        "1E-999",
        "-1e-400",
        "5e-324",
        "0.0010000001",
        "0.001",
        "1e-7",
    ),
    *(
        "2147483648",
        "-2147483649",
        "9223372036854775808",
        "18446744073709551616",
        "-1",
        "10",
    ),
    *(
        '"1"',
        '"-0.5"',
        '"NaN"',
        "true",
        "null",
        "[1]",
        "[]",
        "{}",
        "[[1], 2]",
        "01",
        "+1",
        "0x1",
    ),
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


def require_valid_or_refused(dialect: Dialect, body: bytes) -> None:
    for tokens, logprobs, reason in outcome(dialect, body) or []:
        assert len(tokens) == len(logprobs) <= REQUEST.max_tokens
        assert all(
            type(token) is int and 0 <= token < REQUEST.vocabulary for token in tokens
        )
        assert all(type(p) is float and math.isfinite(p) and p <= 0 for p in logprobs)
        assert re.fullmatch(r"\w{0,40}", reason)


@KINDS
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:20])
def test_any_number_anywhere_is_read_as_by_the_reference(
    kind: str, number: str
) -> None:
    dialect, sound = REPLIES[kind]
    for place in places(sound):
        marked = json.dumps(with_value(sound, place, MARK))
        body = marked.replace(f'"{MARK}"', number).encode()
        assert outcome(dialect, body) == decode_by_reference(dialect, body, REQUEST)


@pytest.mark.parametrize(
    "key", ["token_ids", "token_logprobs", "finish_reason", "choices"]
)
@pytest.mark.parametrize("other", ["[]", "[1, 2, 3]", '"stop"', "null", "{}"])
def test_the_last_of_duplicate_keys_counts(key: str, other: str) -> None:
    dialect, sound = REPLIES["vLLM"]
    body = (
        json.dumps(sound).replace(f'"{key}":', f'"{key}": {other}, "{key}":').encode()
    )
    assert outcome(dialect, body) == SAMPLES
    last = json.dumps(sound).replace(f'"{key}":', f'"{key}": 1, "?":').encode()
    assert outcome(dialect, last) == decode_by_reference(dialect, last, REQUEST)


@KINDS
@given(data=st.data())
def test_a_truncated_or_corrupted_reply_is_valid_or_refused(
    kind: str, data: st.DataObject
) -> None:
    dialect, sound = REPLIES[kind]
    body = json.dumps(sound, ensure_ascii=data.draw(st.booleans())).encode(
        errors="surrogatepass"
    )
    begin = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(begin, len(body)))
    inserted = data.draw(
        st.binary(max_size=4) | st.sampled_from([b"0", b",", b"]", b"\xff", b"e9"])
    )
    require_valid_or_refused(dialect, body[:begin])
    require_valid_or_refused(dialect, body[:begin] + inserted + body[begin:])
    require_valid_or_refused(dialect, body[:begin] + inserted + body[end:])


@KINDS
@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_junk_in_any_place_is_valid_or_refused(kind: str, junk: str) -> None:
    dialect, sound = REPLIES[kind]
    assert outcome(dialect, junk.encode()) is None
    for place in [*places(sound)][:: 1 if len(junk) < 10_000 else 7]:
        marked = json.dumps(with_value(sound, place, MARK))
        require_valid_or_refused(dialect, marked.replace(f'"{MARK}"', junk).encode())


def test_every_choice_of_sglangs_chat_has_our_prompt() -> None:
    first, last = map(sglang_chat, SAMPLES)
    last["prompt_token_ids"] = [5, 6]
    reply = {"choices": [first, last]}
    assert ChatTokens().has_tokens(reply)
    assert refusal(ChatTokens(), json.dumps(reply).encode()).startswith(
        "the server's prompt of 2 tokens differs from ours of 3 at token 2: "
    )
    del last["prompt_token_ids"]
    said = refusal(ChatTokens(), json.dumps({"choices": [last]}).encode())
    assert "has no prompt_token_ids" in said


RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "recordings/vllm-0.32-processed.json").read_text()
)
GROUP = 3
DIALECTS = {"/v1/completions": VllmCompletions(), "/v1/chat/completions": ChatTokens()}


def recorded(path: str) -> tuple[Dialect, dict[str, Any]]:
    """The recorded reply with a group of completions, and what reads it."""
    reply, *_ = [
        exchange["reply"]
        for exchange in RECORDED["exchanges"]
        if exchange["path"] == path and exchange["body"].get("n") == GROUP
    ]
    return DIALECTS[path], reply


ASKED: dict[str, Any] = {**RECORDED["ask"], "prompt": tuple(RECORDED["ask"]["prompt"])}
del ASKED["stops"]  # of an earlier version
RECORDED_REQUEST = replace(
    GenerationRequest(**ASKED), n=GROUP, max_tokens=40, candidates=0
)


@pytest.mark.parametrize("path", DIALECTS)
def test_a_recorded_reply_is_decoded(path: str) -> None:
    dialect, reply = recorded(path)
    body = json.dumps(reply).encode()
    samples = outcome(dialect, body, RECORDED_REQUEST)
    assert len(samples) == GROUP
    assert samples == decode_by_reference(dialect, body, RECORDED_REQUEST)


@pytest.mark.parametrize("path", DIALECTS)
@given(data=st.data())
def test_a_changed_recording_is_read_as_by_the_reference(
    path: str, data: st.DataObject
) -> None:
    dialect, reply = recorded(path)
    place = data.draw(st.sampled_from(list(places(reply))))
    for changed in (with_value(reply, place, data.draw(ODD)), without(reply, place)):
        body = json.dumps(changed).encode()
        expected = decode_by_reference(dialect, body, RECORDED_REQUEST)
        assert outcome(dialect, body, RECORDED_REQUEST) == expected


@KINDS
@given(reply=ODD)
def test_a_reply_of_any_shape_is_valid_or_refused(kind: str, reply: Any) -> None:
    require_valid_or_refused(REPLIES[kind][0], json.dumps(reply).encode())
