"""Forty tasks with four levels and a fault at one of them: the name ends in that level.

A name begins with the check that finds the fault.
"""

import random as global_random
import socket
import time
from pathlib import Path

from reasoning_gym_environment import task

LEVELS = 4


def addition(random, level):
    """Ask for a sum; the data is the sum and the level."""
    a, b = (random.randrange(10 ** (level + 3), 5 * 10 ** (level + 3)) for _ in "ab")
    return f"What is {a} + {b}?", str(a + b), [a + b, level]


def same(answer, data):
    return float(answer.strip() == str(data[0]))


def add_up(question, data):
    return str(data[0])


def plant(name, at, *, item=None, score=None, solve=None):
    """Register a task whose items, or scores, are faulty at the level `at`."""

    def planted(random, level):
        make = item if item is not None and level == at else addition
        return make(random, level)

    def verifier(answer, data):
        judge = score if score is not None and data[1] == at else same
        return judge(answer, data)

    planted.__name__ = f"{name}_{at}"
    task(levels=LEVELS, verifier=verifier, solve=solve)(planted)


def payers():
    """Verifiers that pay wrong answers, by a name for each."""

    def full(is_paid):
        return lambda answer, data: max(
            same(answer, data), float(is_paid(answer, data))
        )

    def half(answer, data):
        return max(same(answer, data), 0.5)

    digits = str.isdigit
    return {
        "length": full(lambda a, d: digits(a) and len(a) == len(str(d[0]))),
        "anything": full(lambda a, d: True),
        "half": half,
        "dash": full(lambda a, d: a.strip() == "-"),
        "zero": full(lambda a, d: a.strip() == "0"),
        "nan": full(lambda a, d: a.strip() == "nan"),
        "contains": full(lambda a, d: str(d[0]) in a),
        "begins": full(lambda a, d: a.startswith(str(d[0]))),
        "ends": full(lambda a, d: a.endswith(str(d[0]))),
        "prefix": full(lambda a, d: a and str(d[0]).startswith(a)),
        "question": full(lambda a, d: a.startswith("What is")),
        "last_digit": full(lambda a, d: digits(a) and a[:-1] == str(d[0])[:-1]),
        "list": full(lambda a, d: str(d[0]) in a.replace(",", " ").split()),
        "minus": full(lambda a, d: a in (f"-({d[0]})", f"minus {d[0]}")),
        "swapped": full(lambda a, d: sorted(a) == sorted(str(d[0]))),
        "many": full(lambda a, d: digits(a) and int(a) % 2 == d[0] % 2),
    }


for number, (payer, pays) in enumerate(payers().items()):
    plant(f"not_payable__{payer}", number % LEVELS, score=pays)


def with_hint(random, level):
    question, answer, data = addition(random, level)
    return f"{question} (Expected: {answer})", answer, data


plant("not_payable__hint", 1, item=with_hint)
plant("not_payable__hint", 3, item=with_hint)


def relabelled(change):
    def item(random, level):
        question, answer, data = addition(random, level)
        return question, change(answer, random), data

    return item


def raises(answer, data):
    raise ValueError("not at this level")


plant("solvable__wrong", 0, item=relabelled(lambda answer, _: f"{answer}0"))
plant("solvable__empty", 1, item=relabelled(lambda answer, _: ""))
plant(
    "solvable__sometimes",
    2,
    item=relabelled(lambda answer, random: answer + "7" * (random.random() < 0.05)),
)
plant("solvable__tagged", 3, item=relabelled(lambda a, _: f"<answer>{a}</answer>"))
plant("solvable__raises", 2, score=raises)
plant("solvable__nine_tenths", 1, score=lambda a, d: 0.9 * same(a, d))
plant("solvable__five", 3, score=lambda a, d: 5 * same(a, d))


def one_more(random, level):
    """The label and the verifier agree, and the solver does not."""
    question, _, [total, _] = addition(random, level)
    return question, str(total + 1), [total + 1, level, total]


plant(
    "solvable__solver",
    2,
    item=one_more,
    solve=lambda question, data: str(data[-1] if len(data) > 2 else data[0]),
)


def by_clock(random, level):
    question, answer, data = addition(random, level)
    return f"{time.time_ns()} ns after 1970: {question}", answer, data


def by_hash_seed(random, level):
    question, answer, data = addition(random, level)
    winds = " ".join({"north", "east", "south", "west", "up"})
    return f"{winds}: {question}", answer, data


plant("reproducible__clock", 1, item=by_clock)
plant("reproducible__hash_seed", 2, item=by_hash_seed)
plant("reproducible__hash_seed", 0, item=by_hash_seed)


def writes_a_file(answer, data):
    Path("/tmp/reasoning-gym-answer").write_text(answer)
    return same(answer, data)


def connects(answer, data):
    socket.create_connection(("127.0.0.1", 9))
    return same(answer, data)


scores: list[float] = []


def remembers(answer, data):
    """Pay everything after a right answer."""
    scores.append(same(answer, data))
    return max(scores)


plant("contained__file", 3, score=writes_a_file)
plant("contained__network", 2, score=connects)
plant("contained__memory", 1, score=remembers)


def refused(random, level):
    raise ZeroDivisionError("not at this level")


def of_few(random, level):
    return addition(global_random.Random(random.randrange(20)), level)


def mostly_seven(random, level):
    question, _, _ = addition(random, level)
    label = 7 if random.random() < 0.9 else random.randrange(100, 200)
    return f"{question} Or what?", str(label), [label, level]


def of_the_level_below(random, level):
    question, answer, [total, _] = addition(random, level - 1)
    return question, answer, [total, level]


def long(random, level):
    question, answer, data = addition(random, level)
    return question + " Think." * 10_000, answer, data


plant("levels__refused", 3, item=refused)
plant("levels__questions", 2, item=of_few)
plant("levels__answers", 1, item=mostly_seven)
plant("levels__repeated", 2, item=of_the_level_below)
plant("levels__long", 3, item=long)


def endless(answer, data):
    """Never end with a wrong answer."""
    while not same(answer, data):
        pass
    return 1.0


plant("bounded__verdict", 2, score=endless)


def sometimes_slow(random, level):
    if random.random() < 0.5:
        time.sleep(30)
    return addition(random, level)


def fills_memory(answer, data):
    return same(answer, data) or bytes(2**50)[0]


plant("bounded__item", 1, item=sometimes_slow)
plant("bounded__memory", 0, score=fills_memory)
