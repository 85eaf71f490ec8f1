"""Labels that a model would write otherwise, and answers that stand in their questions."""

import random
from collections.abc import Callable

import pytest

from reasoning_gym_environment.proof.copies import copies_for
from reasoning_gym_environment.proof.labels import written_forms
from reasoning_gym_environment.sandbox.pool import TaskPool

Item = tuple[str, str]


@pytest.mark.parametrize(
    ("label", "forms"),
    [
        ("42", {}),
        ("-0.125", {}),
        ("1000000.5", {}),
        ("über", {}),
        ("👩\u200d🚀", {}),
        ("u\u0308ber", {"unusual characters": "über"}),
        ("1\u00a0753", {"unusual characters": "1 753"}),
        ("\ufeffyes\u200b", {"unusual characters": "yes"}),
        ("19.599999999999998", {"float noise": "19.6"}),
        ("x = 0.30000000000000004", {"float noise": "x = 0.3"}),
        ("2.9999999999999996, -1.1000000000000001", {"float noise": "3, -1.1"}),
        ("0.3333333333333333", {}),
        ("1" * 600_000, {}),
        ("0." + "0" * 600_000, {}),
    ],
)
def test_a_label_is_written_as_a_model_would(label: str, forms: dict[str, str]) -> None:
    assert written_forms(label) == forms


def items(ask: Callable[[random.Random], Item], seed: int) -> list[Item]:
    source = random.Random(seed)
    return [ask(source) for _ in range(30)]


def share_copied(ask: Callable[[random.Random], Item]) -> float:
    """The best share of the answers to other questions that are copied."""
    copies = copies_for(items(ask, 0)).values()
    others = items(ask, 1)
    return max(
        (
            sum(copy(q) == answer for q, answer in others) / len(others)
            for copy in copies
        ),
        default=0.0,
    )


def in_brackets(source: random.Random) -> Item:
    a, b = source.randrange(100), source.randrange(100)
    return f"Add {a} and {b}. (Expected: {a + b})", str(a + b)


def in_the_middle(source: random.Random) -> Item:
    a, b = source.randrange(100), source.randrange(100)
    return f"Tom wrote {a} + {b} = {a + b} on the board. What is {a} + {b}?", str(a + b)


def on_the_first_line(source: random.Random) -> Item:
    word = "".join(source.choices("abcdefgh", k=8))
    return f"solution: {word}\nWhich word is {word[::-1]} backwards?", word


def of_three(source: random.Random) -> Item:
    words = [
        "".join(source.choices("abcdef", k=n)) for n in source.sample(range(2, 9), 3)
    ]
    return f"Which is the longest of {', '.join(words)}?", max(words, key=len)


def sums(source: random.Random) -> Item:
    a, b = source.randrange(1000), source.randrange(1000)
    return f"What is {a} + {b}?", str(a + b)


@pytest.mark.parametrize("ask", [in_brackets, in_the_middle, on_the_first_line])
def test_an_answer_that_stands_at_one_place_is_copied(
    ask: Callable[[random.Random], Item],
) -> None:
    assert share_copied(ask) == 1.0


@pytest.mark.parametrize("ask", [of_three, sums])
def test_an_answer_that_has_to_be_found_is_not(
    ask: Callable[[random.Random], Item],
) -> None:
    assert share_copied(ask) < 0.75


@pytest.mark.asyncio(loop_scope="session")
async def test_an_entry_whose_label_no_completion_can_give_is_faulty(
    pool: TaskPool,
) -> None:
    entry = {"question": "What is 3 + 4?", "metadata": {"source_dataset": "gcd"}}
    for answer, detail in (
        ("<answer>7</answer>", "the label can't be given: 4 answer tags"),
        ("<think>7</think>8", "a part is read as its answer, '8'"),
    ):
        fault = await pool.fault_of("gcd", {**entry, "answer": answer})
        assert fault is not None
        assert (fault.kind.value, detail in fault.detail) == ("unanswerable", True)
    assert await pool.fault_of("gcd", {**entry, "answer": "7 "}) is None
