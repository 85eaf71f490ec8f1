"""What can be answered without reasoning: the strategies on questions as the tasks ask them."""

import pytest

from reasoning_gym_environment.audit._strategies import OWN_WORK, strategies
from reasoning_gym_environment.tasks.catalogue import known_categories

MATRIX = "Rotate the matrix below by 180 degrees:\n1 2\n3 4\n"
ROLES = 'Who is who? (Format your answer like: "Zoey is a hero/villain, and Ann is a hero/villain")'
PREMISES = "Given:\n1. Q\n.2. (Q → P)\n.What can we conclude?"
GRAPH = "Vertices: [0, 1, 2, 3]\nEdges: [(0, 1)]\nPossible colors: [1, 2, 3]\n"
LADDER = "Transform the word ladder 'COLD' to 'CORE' by changing one letter at a time."
SORTING = "Sort, e.g. word_1, word_2\n\nNow, sort these words: pear, apple, Fig"
LARGEST = "Pick the largest of the following: 1,250.5 9.7e+02 38"


@pytest.mark.parametrize(
    ("question", "label", "answer"),
    [
        (MATRIX, "the last grid", "1 2\n3 4"),
        (MATRIX, "the last grid backwards", "4 3\n2 1"),
        (MATRIX, "the last grid turned right", "3 1\n4 2"),
        (MATRIX, "the last grid in one row", "1 2 3 4"),
        (MATRIX, "the last number", "4"),
        (MATRIX, "line 1", "Rotate the matrix below by 180 degrees:"),
        (MATRIX, "the longest word", "degrees"),
        (ROLES, "the last quotation with the first choices", "Zoey is a hero, and Ann is a hero"),
        (
            ROLES,
            "the last quotation with the first and second choices",
            "Zoey is a hero, and Ann is a villain",
        ),
        (PREMISES, "the premises by and", "(Q) ∧ ((Q → P))"),
        (PREMISES, "the first premise and a variable by and", "(Q) ∧ Q"),
        (
            GRAPH,
            "the last bracket mapped onto the first in turn",
            '{"0": 1, "1": 2, "2": 3, "3": 1}',
        ),
        (LADDER, "the first word changed into the second in order", "COLD,CORD,CORE"),
        (SORTING, "the last list sorted, by commas", "Fig, apple, pear"),
        (SORTING, "the last list backwards, by commas", "Fig, apple, pear"),
        (SORTING, "example 1", "word_1, word_2"),
        (SORTING, "the last word backwards", "giF"),
        (LARGEST, "the largest number", "1,250.5"),
        (LARGEST, "number 2 after the last colon", "9.7e+02"),
        (LARGEST, "the sum of the last two numbers", "1008"),
        (LARGEST, "the first number less the second", "280.5"),
    ],
)
def test_a_strategy_copies_or_calculates(question: str, label: str, answer: str) -> None:
    assert strategies(question)[label] == answer


@pytest.mark.parametrize("question", [MATRIX, ROLES, PREMISES, GRAPH, LADDER, SORTING, LARGEST])
def test_strategies_are_many_and_give_the_same_answers_again(question: str) -> None:
    answers = strategies(question)
    assert len(answers) > 100
    assert strategies(question) == answers
    assert all(text == text.strip() != "" for text in answers.values())


@pytest.mark.parametrize("question", ["", "\n", "[", "]]]", "1/0", "?" * 9000, "9" * 500, "0, 0"])
def test_any_question_has_strategies(question: str) -> None:
    assert all(len(text) <= 4000 for text in strategies(question).values())


def test_what_is_a_tasks_own_work_is_named_of_tasks_and_strategies_that_exist() -> None:
    labels = [label for text in (MATRIX, SORTING, LARGEST) for label in strategies(text)]
    assert OWN_WORK.keys() <= known_categories().keys()
    for beginnings in OWN_WORK.values():
        assert all(any(label.startswith(one) for label in labels) for one in beginnings)
