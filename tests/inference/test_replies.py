"""Whatever a server answers is read as sound completions or refused in one way."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_values import ODD, places, with_value, without

from reasoning_gym_environment.inference.dialects import ChatTokens, VllmCompletions
from reasoning_gym_environment.inference.requests import Ask, Dialect, ReplyError, read

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


def ask() -> Ask:
    whole = RECORDED["ask"]
    lists = {"prompt": tuple(whole["prompt"]), "stops": frozenset(whole["stops"])}
    return replace(Ask(**{**whole, **lists}), n=GROUP, max_tokens=40, candidates=0)


def require_sound(dialect: Dialect, reply: Any) -> None:
    try:
        samples = read(dialect, reply, ask())
    except ReplyError:
        return
    for tokens, logprobs, reason in samples:
        assert len(tokens) == len(logprobs) <= 40
        assert all(type(t) is int and 0 <= t < ask().vocabulary for t in tokens)
        assert all(math.isfinite(p) and p <= 0 for p in logprobs)
        assert reason in ("stop", "length")


@pytest.mark.parametrize("path", DIALECTS)
def test_the_recorded_reply_is_read(path: str) -> None:
    dialect, reply = recorded(path)
    assert len(read(dialect, reply, ask())) == GROUP


@pytest.mark.parametrize("path", DIALECTS)
@given(data=st.data())
def test_a_reply_with_anything_in_any_place_is_sound_or_refused(
    path: str, data: st.DataObject
) -> None:
    dialect, reply = recorded(path)
    place = data.draw(st.sampled_from(list(places(reply))))
    require_sound(dialect, with_value(reply, place, data.draw(ODD)))
    require_sound(dialect, without(reply, place))


@pytest.mark.parametrize("path", DIALECTS)
@given(reply=ODD)
def test_a_reply_of_any_shape_is_sound_or_refused(path: str, reply: Any) -> None:
    require_sound(DIALECTS[path], reply)
