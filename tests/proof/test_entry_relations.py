"""What holds in all entries of a task, learned from a few."""

from typing import Any

from reasoning_gym_environment.proof.entry_relations import Relations, relations_of


def entry(number: int, **changes: Any) -> dict[str, Any]:
    """An entry of a task whose metadata repeats answer and numbers."""
    values = [number + 100, number + 200]
    made = {
        "question": f"Please add the numbers of this list: {values[0]}, {values[1]}. Only the sum!",
        "answer": str(sum(values)),
        "metadata": {"numbers": values, "sum": sum(values), "terms": 2},
    }
    return made | changes


ENTRIES = [entry(number) for number in range(8)]


def test_what_holds_in_all_is_learned() -> None:
    assert relations_of(ENTRIES) == Relations(
        answer_is=[("sum", "text")],
        question_has=["numbers"],
        beginning="Please add the numbers of this list: ",
        end="",
    )
    assert relations_of(ENTRIES[:7]) == Relations()


def test_contradictions_name_the_field() -> None:
    relations = relations_of(ENTRIES)
    sound = entry(50)
    assert relations.confirms(sound)
    assert not relations.wrong_answer(sound)
    assert not relations.wrong_answer(entry(50, answer="400.0"))
    assert not relations.changed_question(sound)
    wrong = entry(50, answer="401")
    assert (
        relations.wrong_answer(wrong) == "its answer '401' is not metadata.sum, '400'"
    )
    longer = sound["question"].replace("150", "1501")
    assert relations.changed_question(entry(50, question=longer)) == (
        "its question lacks '150', which metadata.numbers has"
    )
    without = entry(50, metadata={"terms": 2})
    assert not relations.wrong_answer(without)
    assert not relations.confirms(without)


def test_what_agrees_by_chance_or_with_nothing_is_not_learned() -> None:
    alike = [entry(number % 2) for number in range(8)]
    assert not relations_of(alike).answer_is
    unanswered = [{**one, "answer": None} for one in ENTRIES]
    assert not relations_of(unanswered).answer_is
    digits = [
        {**one, "question": "1 2 3 4 5 6 7 8 9", "metadata": {"n": number}}
        for number, one in enumerate(ENTRIES, start=1)
    ]
    assert not relations_of(digits).question_has


def test_answers_may_write_lists_and_grids() -> None:
    writings = {
        "commas": ([1, 2], "1, 2"),
        "spaces": ([1, 2], "1 2"),
        "grid": ([[1, 2], [3, 4]], "1 2\n3 4"),
    }
    for writing, (value, answer) in writings.items():
        entries = []
        for number in range(8):
            of_number = str(value).replace("1", str(number + 5))
            entries.append(
                {
                    "question": "?",
                    "answer": answer.replace("1", str(number + 5)),
                    "metadata": {"solution": eval(of_number)},
                }
            )
        assert relations_of(entries).answer_is == [("solution", writing)]
