"""One warning says where nothing can be learned, shows what the model wrote, and names ways out."""

from dataclasses import replace

import pytest
from group_values import completion, group

from reasoning_gym_environment.records import GroupResult, Status
from reasoning_gym_environment.rollouts.hints import GROUPS, Hints, hint, shortened
from reasoning_gym_environment.rollouts.metrics import Statistics


def unanswered(*texts: str, finish_reason: str = "stop") -> GroupResult:
    """A group without any answer."""
    base = group(*(0.0 for _ in texts), texts=texts)
    return replace(
        base,
        attempts=tuple(
            replace(
                attempt,
                completion=completion(attempt.completion.text, finish_reason=finish_reason),
                verdict=replace(attempt.verdict, status=Status.NO_ANSWER),
            )
            for attempt in base.attempts
        ),
    )


def said_after(groups: list[GroupResult]) -> list[str | None]:
    """What is said after each of the groups."""
    statistics, hints = Statistics(), Hints()
    said = []
    for each in groups:
        statistics.add_group(each, {"gcd": "arithmetic"})
        said.append(hints.after(each, statistics))
    return said


def test_without_answers_one_hint_comes_after_fifty_groups() -> None:
    said = said_after([unanswered(f"The answer\nis {n}.", "hm") for n in range(120)])
    assert [number for number, text in enumerate(said, 1) if text] == [GROUPS] == [50]
    assert said[49] == (
        "100% of the completions of the first 50 groups have no answer between <answer> and "
        "</answer> (0% are truncated): nothing can be learned from them. The model wrote:\n"
        "  The answer is 0.\n"
        "  The answer is 1.\n"
        "Ways out: train it on demonstrations first (`export --format sft` makes them from "
        "rollouts of a model that answers); another system_prompt; another chat template, where "
        "this one opens a thought that the prompt asks for again (docs/inference.md); where "
        "answers stand in their tags in another form, answer_tolerance."
    )


def test_where_nearly_all_break_off_the_hint_is_about_their_length() -> None:
    said = said_after([unanswered("<think>so", finish_reason="length") for _ in range(50)])[-1]
    assert said == (
        "100% of the completions of the first 50 groups are truncated at max_token_length: "
        "nothing can be learned from them. The model wrote:\n"
        "  <think>so\n"
        "  <think>so\n"
        "Ways out: a larger max_token_length, at the server too; a model that thinks less; for "
        "one that thinks by itself, system_prompt: direct."
    )


def test_where_some_have_an_answer_there_is_no_hint() -> None:
    groups = [unanswered("hm") for _ in range(47)] + [group(0.0) for _ in range(3)]
    assert said_after(groups) == [None] * 50


@pytest.mark.parametrize(
    ("no_answer", "truncated", "expected"),
    [(0.94, 0.94, None), (0.95, 0.0, "no answer"), (0.95, 0.95, "are truncated at")],
)
def test_nearly_all_is_nineteen_in_twenty(
    no_answer: float, truncated: float, expected: str | None
) -> None:
    said = hint(no_answer, truncated, [])
    assert said is None if expected is None else expected in str(said)


def test_a_text_is_shown_on_one_safe_line_with_its_beginning_and_end() -> None:
    assert shortened("\x1b[31mred\n\n\u202eside") == "\\x1b[31mred \\u202eside"
    long = shortened("a" * 500 + "z" * 500)
    assert long == "a" * 79 + " … " + "z" * 78
    assert len(long) == 160
