"""What travels over the pipes, and what is made of a reply that can't be trusted."""

import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoning_gym_environment.records import Status
from reasoning_gym_environment.sandbox._protocol import (
    FORM_SCORES,
    LENGTH,
    FormScores,
    Outcome,
    read_frame,
    to_verdict,
    unpack_verdicts,
    write_frame,
)

form_scores = st.builds(
    FormScores,
    outcome=st.sampled_from(Outcome),
    raw=st.floats(),
    tagged=st.floats(),
    seconds=st.floats(),
    errors=st.integers(-(2**31), 2**31 - 1),
)


@given(form_scores)
def test_any_numbers_survive_the_pipe_and_give_a_verdict_in_range(
    scores: FormScores,
) -> None:
    packed = scores.pack()
    assert len(packed) == FORM_SCORES.size
    assert FormScores.unpack(packed).pack() == packed
    [verdict] = unpack_verdicts(packed, 1)
    if scores.outcome in (Outcome.KILLED, Outcome.STARVED, Outcome.UNTRIED):
        assert (verdict.score, verdict.status) == (None, Status.UNSCORED)
    else:
        assert verdict.score is not None
        assert 0.0 <= verdict.score <= 1.0
    assert 0 <= verdict.errors <= 2
    for form in (verdict.raw_score, verdict.tagged_score):
        assert form is None or 0.0 <= form <= 1.0
    assert math.isfinite(verdict.seconds)  # can be averaged and written as JSON
    assert verdict.seconds >= 0.0


@given(
    st.integers(8, 255),
    st.binary(min_size=FORM_SCORES.size - 1, max_size=FORM_SCORES.size - 1),
)
def test_an_outcome_that_does_not_exist_is_a_value_error(
    outcome: int, rest: bytes
) -> None:
    with pytest.raises(ValueError, match="Outcome"):
        unpack_verdicts(bytes([outcome]) + rest, 1)


@given(st.binary(max_size=4 * FORM_SCORES.size), st.integers(0, 5))
def test_a_reply_of_another_size_is_a_value_error(payload: bytes, count: int) -> None:
    if len(payload) == count * FORM_SCORES.size:
        payload += b"\0"
    with pytest.raises(ValueError, match=f"{len(payload)} bytes for {count} verdicts"):
        unpack_verdicts(payload, count)


def test_verdicts_keep_the_order_of_the_records() -> None:
    scores = [FormScores(outcome=Outcome.SCORED, raw=raw) for raw in (0.0, 1.0, 0.25)]
    verdicts = unpack_verdicts(b"".join(s.pack() for s in scores), 3)
    assert [verdict.score for verdict in verdicts] == [0.0, 1.0, 0.25]
    assert unpack_verdicts(b"", 0) == []


def test_the_better_form_counts_within_zero_and_one() -> None:
    for raw, tagged, score in (
        *(
            (1.0000000000000002, math.nan, 1.0),
            (-0.5, math.nan, 0.0),
            (math.nan, 0.3, 0.3),
        ),
        *((0.2, 0.7, 0.7), (-math.inf, math.nan, 0.0)),
    ):
        assert (
            to_verdict(FormScores(outcome=Outcome.SCORED, raw=raw, tagged=tagged)).score
            == score
        )


def test_one_form_that_raises_costs_nothing_where_the_other_is_right() -> None:
    verdict = to_verdict(FormScores(outcome=Outcome.SCORED, tagged=1.0, errors=1))
    assert (verdict.score, verdict.status, verdict.errors) == (1.0, Status.SOLVED, 1)


@pytest.mark.parametrize("name", ["TIMEOUT", "OUT_OF_MEMORY", "CRASHED"])
def test_an_answer_that_did_not_finish_earns_nothing_whatever_one_form_had(
    name: str,
) -> None:
    verdict = to_verdict(FormScores(outcome=Outcome[name], raw=1.0, tagged=1.0))
    assert (verdict.score, verdict.status) == (0.0, Status[name])
    assert verdict.detail


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_frames_come_out_as_they_went_in(payloads: list[bytes]) -> None:
    stream = io.BytesIO()
    for payload in payloads:
        write_frame(stream, payload)
    stream.seek(0)
    assert [read_frame(stream) for _ in payloads] == payloads
    assert read_frame(stream) is None


@given(st.binary(min_size=1, max_size=50), st.data())
def test_a_stream_that_ends_amid_a_frame_gives_none(
    payload: bytes, data: st.DataObject
) -> None:
    whole = LENGTH.pack(len(payload)) + payload
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert read_frame(io.BytesIO(whole[:cut])) is None
