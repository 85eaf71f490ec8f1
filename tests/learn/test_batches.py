"""What Atropos's example trainer makes of our groups is what we sent, row by row."""

import json
from dataclasses import replace
from typing import Any

import pytest
from group_values import completion, group
from injected import UNSCORED, advantages, injected_scores

from reasoning_gym_environment.atropos.rows import to_scored_data_group
from reasoning_gym_environment.records import Completion, GroupResult
from reasoning_gym_environment.scoring.grading import shape_rewards

TEMPERATURE = 0.7


def with_logprobs(prompt: int, length: int, finish_reason: str = "stop") -> Completion:
    made = completion(prompt=prompt, length=length, finish_reason=finish_reason)
    logprobs = (*(1.0 for _ in range(prompt)), *(-0.5 - n / 8 for n in range(length)))
    return replace(made, logprobs=logprobs)


def made_of(scores: tuple[float, ...], completions: list[Completion]) -> GroupResult:
    scored = group(*scores)
    attempts = zip(scored.attempts, completions, strict=True)
    return replace(
        scored, attempts=tuple(replace(a, completion=c) for a, c in attempts)
    )


def sent(result: GroupResult) -> dict[str, Any]:
    """A group as the trainer gets it, over JSON."""
    made = to_scored_data_group(
        result,
        [],
        generation_params={"temperature": TEMPERATURE},
        mask_truncated=True,
        include_messages=False,
    )
    received: dict[str, Any] = json.loads(json.dumps(made))
    return received


def shaped(result: GroupResult) -> GroupResult:
    """The group with the rewards that grading gives."""
    verdicts = [attempt.verdict for attempt in result.attempts]
    lengths = [1] * len(verdicts)
    rewards = shape_rewards(verdicts, lengths, max_length=8, penalty_start=0.75)
    return result.with_rewards([reward.value for reward in rewards])


GROUPS = [
    made_of((1.0, 0.0, 0.0), [with_logprobs(3, n) for n in (1, 70, 7)]),
    made_of(
        (0.0, 1.0, 1.0),
        [with_logprobs(9, 5), with_logprobs(9, 6), with_logprobs(9, 8, "length")],
    ),
]


def test_every_row_is_what_was_sent() -> None:
    pytest.importorskip("torch", reason="Atropos's example trainer needs PyTorch")
    from example_trainer.data import pad_data_to_good_offset

    batch = [sent(result) for result in GROUPS]
    rows = [
        row
        for each in batch
        for row in zip(
            each["tokens"], each["masks"], each["inference_logprobs"], strict=True
        )
    ]
    padded = pad_data_to_good_offset({"batch": [sent(r) for r in GROUPS]}, batch_size=2)
    tokens, labels, advantages, temperatures, logprobs = (
        [row for part in parts for row in part.tolist()] for parts in padded
    )
    assert len(tokens) == len(rows) == 6
    for index, (own_tokens, own_masks, own_logprobs) in enumerate(rows):
        room = len(tokens[index]) + 1 - len(own_tokens)
        assert tokens[index] == (own_tokens + [0] * room)[:-1]
        assert labels[index] == (own_masks + [-100] * room)[1:]
        assert logprobs[index] == pytest.approx((own_logprobs + [1.0] * room)[1:])
    assert [t for [[t]] in temperatures] == pytest.approx([TEMPERATURE] * 6)
    assert [a for [a] in advantages] == pytest.approx(
        # The last was truncated.
        [2**0.5, -(0.5**0.5), -(0.5**0.5), -(2**0.5), 0.5**0.5, 0.0]
    )


def test_a_failure_of_ours_trains_neither_its_row_nor_its_groups_others() -> None:
    """The example trainer divides by a standard deviation that a row at the mean makes smaller."""
    pytest.importorskip("torch", reason="Atropos's example trainer needs PyTorch")
    from example_trainer.data import pad_data_to_good_offset

    groups = injected_scores()
    batch = [sent(shaped(group(*scores))) for scores in groups]
    _, _, parts, _, _ = pad_data_to_good_offset({"batch": batch}, batch_size=2)
    trained = iter([row for part in parts for [row] in part.tolist()])
    unscored = 0
    for scores in groups:
        scored = sum(score is not None for score in scores)
        scale = (len(scores) / scored) ** 0.5
        expected = [scale * one for one in advantages(scores, sample=False)]
        assert [next(trained) for _ in scores] == pytest.approx(expected, abs=1e-6)
        unscored += len(scores) - scored
    assert unscored == UNSCORED
