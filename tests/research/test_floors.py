"""What can be answered without reasoning: strategies, floors, and the floors that are kept."""

import json
import re
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest

from docs.difficulty_levels import read_table
from reasoning_gym_environment.problems.seeds import evaluation_recipes
from reasoning_gym_environment.problems.stream import skip_faulty
from reasoning_gym_environment.proof.answers import TOLERATED_SHARE
from reasoning_gym_environment.proof.findings import known_weaknesses
from reasoning_gym_environment.records import Recipe
from reasoning_gym_environment.sandbox.pool import TaskPool
from reasoning_gym_environment.tasks import facts
from reasoning_gym_environment.tasks.facts import (
    PAYS_ANY_ANSWER,
    Floor,
    Floors,
    all_level_floors,
    floors,
    known_categories,
    ladder_heights,
    solved_score,
)
from research.floors import fresh
from research.floors.__main__ import main
from research.floors.measure import (
    CLOSED_ANSWERS,
    best,
    constants_to_try,
    find_floors,
    floor,
    most_frequent,
)
from research.floors.strategies import OWN_WORK, strategies

SESSION = pytest.mark.asyncio(loop_scope="session")
FEWEST = {"futoshiki": 150, "intermediate_integration": 100, "knight_swap": 100}
"""Items on which a floor was measured: fewer than 300 where they take seconds."""

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
        (
            ROLES,
            "the last quotation with the first choices",
            "Zoey is a hero, and Ann is a hero",
        ),
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
def test_a_strategy_copies_or_calculates(
    question: str, label: str, answer: str
) -> None:
    assert strategies(question)[label] == answer


@pytest.mark.parametrize(
    "question", [MATRIX, ROLES, PREMISES, GRAPH, LADDER, SORTING, LARGEST]
)
def test_strategies_are_many_and_give_the_same_answers_again(question: str) -> None:
    answers = strategies(question)
    assert len(answers) > 100
    assert strategies(question) == answers
    assert all(text == text.strip() != "" for text in answers.values())


@pytest.mark.parametrize(
    "question", ["", "\n", "[", "]]]", "1/0", "?" * 9000, "9" * 500, "0, 0"]
)
def test_any_question_has_strategies(question: str) -> None:
    assert all(len(text) <= 4000 for text in strategies(question).values())


def test_what_is_a_tasks_own_work_is_named_of_tasks_and_strategies_that_exist() -> None:
    labels = [
        label for text in (MATRIX, SORTING, LARGEST) for label in strategies(text)
    ]
    assert OWN_WORK.keys() <= known_categories().keys()
    for beginnings in OWN_WORK.values():
        assert all(any(label.startswith(one) for label in labels) for one in beginnings)


def test_the_most_frequent_answer_of_a_closed_set_has_its_share_of_all_items() -> None:
    measured = most_frequent(["Yes", "No", "Yes", "Yes"])
    assert measured[:3] == ("Yes", 4, 0.75)
    assert measured.low < 0.75 < measured.high


def test_the_floor_is_the_constant_that_solves_most_items() -> None:
    scores = [{"yes": 1.0, "no": 1.0}, {"yes": 0.0, "no": 0.0}, {"yes": 0.0, "no": 1.0}]
    measured = floor(best(scores, 1.0), scores, 1.0)
    assert (measured.label, measured.solved) == ("no", pytest.approx(2 / 3))
    assert measured.low < 2 / 3 < measured.high


def test_a_floor_is_of_answers_that_are_seen_as_answers() -> None:
    constants = constants_to_try(["7", "yes", "yes"])
    assert {"7", "yes", "0", "asdf qwer", "[]"} <= constants.keys()
    assert all(text.strip() for text in constants)


def test_a_strategy_without_an_answer_on_an_item_solves_nothing_there() -> None:
    scores = [{"a": 1.0}, {}, {"a": 1.0, "b": 0.9}, {"b": 0.4}]
    assert best(scores, 1.0) == "a"
    assert floor("a", scores, 1.0).solved == 0.5
    assert floor("b", scores, 0.5).solved == 0.25


def test_of_no_items_no_floor_is_known() -> None:
    assert best([], 1.0) == ""
    assert floor("", [], 1.0)[1:] == (0, 0.0, 0.0, 1.0)


def test_the_floors_are_of_the_installed_library() -> None:
    stored = json.loads(
        Path(facts.__file__).with_name("chance_floors.json").read_text()
    )
    assert stored["reasoning_gym"] == version("reasoning-gym")


def test_what_is_paid_without_reasoning_is_in_the_list_of_what_is_accepted() -> None:
    paid = {
        task
        for task, kept in floors().items()
        if any(
            one.low > TOLERATED_SHARE / 2 and one.solved >= TOLERATED_SHARE
            for one in kept
        )
    }
    assert paid - PAYS_ANY_ANSWER.keys() <= known_weaknesses().keys()


def test_what_is_accepted_has_the_shares_of_the_floors() -> None:
    for task, said in known_weaknesses().items():
        for own in floors()[task]:
            label = re.escape(own.label)
            for share in re.findall(rf"(?:^|; )`?{label}`? solves ([\d.]+)", said):
                assert float(share) == pytest.approx(own.solved, abs=0.0051), (
                    task,
                    own.label,
                )


def test_every_floor_has_its_items_and_an_interval_around_it() -> None:
    assert floors().keys() == known_categories().keys()
    for task, kept in floors().items():
        for one in kept:
            assert one.items >= FEWEST.get(task, 300), task
            assert 0.0 <= one.low <= one.solved <= one.high <= 1.0
            assert one.label or not one.solved
    assert floors(0.9) == {}


def test_no_constant_is_right_too_often_at_any_level() -> None:
    """As `docs/difficulty_levels.py` asks of labels: the most frequent of k for 1/k + 15 %."""
    measured = all_level_floors()
    heights = {task: len(own) for task, own in measured.items()}
    assert heights.items() <= ladder_heights().items()
    for row in read_table():
        if row["task"] not in measured:
            continue
        own = measured[row["task"]][int(row["level"])]
        for one in own:
            assert one.items > 0
            assert 0.0 <= one.low <= one.solved <= one.high <= 1.0
        if row["task"] not in PAYS_ANY_ANSWER and row["answers"]:
            assert own.chance.low <= 1 / max(2, int(row["answers"])) + 0.15, row


def test_chance_is_at_least_that_of_a_blind_pick_among_a_closed_set_of_answers() -> (
    None
):
    rows = [row for row in read_table() if row["task"] in CLOSED_ANSWERS]
    assert {row["task"] for row in rows} == CLOSED_ANSWERS
    for row in rows:
        chance = all_level_floors()[row["task"]][int(row["level"])].chance
        # Floors are stored with three digits.
        assert chance.solved >= 1 / int(row["answers"]) - 0.0005, row
    choices = {row["task"] for row in rows if row["answers"] == "2"}
    for task in choices - {"zebra_puzzles"}:  # of more people by default
        assert floors()[task].chance.solved >= 0.5, task


COPIED = {"string_insertion": 0.1, "binary_matrix": 0.4, "pool_matrix": 0.4}
"""What a copy of the question may solve at a level of tasks whose default items it solves."""


@pytest.mark.parametrize("task", COPIED)
def test_levels_have_no_items_whose_question_is_the_answer(task: str) -> None:
    for level, own in enumerate(all_level_floors()[task]):
        assert own.no_reasoning.low <= COPIED[task], level


@SESSION
@pytest.mark.parametrize(
    ("task", "strategy", "least", "most"),
    [
        ("rotate_matrix", "the last grid backwards", 0.1, 0.5),
        ("graph_color", "the last bracket mapped onto the first in turn", 0.3, 0.8),
    ],
)
async def test_what_needs_no_reasoning_is_found(
    pool: TaskPool, task: str, strategy: str, least: float, most: float
) -> None:
    found = await find_floors(pool, task, 60)
    problem = await pool.generate(Recipe(task=task, seed=3))
    answers = strategies(problem.question)
    assert answers[found.no_reasoning.label] == answers[strategy]
    assert (
        found.no_reasoning.low <= found.no_reasoning.solved <= found.no_reasoning.high
    )
    assert least <= found.no_reasoning.solved <= most
    assert found.chance.solved < found.no_reasoning.solved


@SESSION
async def test_a_constant_solves_half_of_few_items_with_two_answers(
    pool: TaskPool,
) -> None:
    few = await find_floors(pool, "course_schedule", 9)
    assert few.chance.label in ("True", "False")
    assert few.chance.solved >= 0.5


@SESSION
@pytest.mark.parametrize(
    "task", ["aiw", "course_schedule", "number_format", "pool_matrix"]
)
async def test_the_floors_that_are_kept_hold_on_new_items(
    pool: TaskPool, task: str
) -> None:
    kept = floors()[task]
    scores: dict[Floor, list[dict[str, float]]] = {
        kept.chance: [],
        kept.no_reasoning: [],
    }
    for recipe in evaluation_recipes(99, [task], 40):
        problem = await skip_faulty(pool.generate, Counter())(recipe)
        copied = strategies(problem.question).get(kept.no_reasoning.label, "")
        verdicts = await pool.verify(problem, [kept.chance.label, copied])
        for one, verdict in zip(kept, verdicts, strict=True):
            scores[one].append({one.label: verdict.score or 0.0})
    for one, own in scores.items():
        again = floor(one.label, own, solved_score(task))
        assert again.low <= one.high
        assert one.low <= again.high


@pytest.mark.processes
def test_the_command_writes_the_floors_of_named_tasks_beside_the_others(
    tmp_path: Path,
) -> None:
    file = tmp_path / "floors.json"
    file.write_text('{"floors": {"gcd": {}}}')
    assert main([str(file), "--tasks", "game_of_life_halting", "--items", "6"]) == 0
    written = json.loads(file.read_text())["floors"]
    assert written["gcd"] == {}
    own = written["game_of_life_halting"]
    assert own["chance"]["solved"] == own["no_reasoning"]["solved"] == 1.0


@pytest.mark.processes
def test_stated_floors_hold_on_fresh_items(capsys: pytest.CaptureFixture[str]) -> None:
    assert fresh.main(["--tasks", "gcd", "--items", "8"]) == 0
    assert "nothing is above its floor" in capsys.readouterr().out


@pytest.mark.processes
async def test_a_floor_that_is_stated_too_low_is_found() -> None:
    nothing = Floor(label="1", items=200, solved=0.0, low=0.0, high=0.02)
    stated = {"game_of_life_halting": [Floors(nothing, nothing)] * 5}
    found = await fresh.check(["game_of_life_halting"], 6, stated)
    assert len(found) > 5
    assert (
        "game_of_life_halting 0: the constant 'yes' solves 6 of 6, where its floor is 0.000 "
        "(0.000 to 0.020)" in found
    )
