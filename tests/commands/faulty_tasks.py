"""Tasks with one planted fault each. A name begins with the row of `prove`'s table that refuses it.

`sound` has none. The others differ from it by their fault alone.
"""

import random as global_random
import socket
import time
from pathlib import Path

from reasoning_gym_environment import task


def addition(random, level):
    """Ask for a sum; the data is the sum."""
    a, b = (random.randrange(10 ** (level + 4)) for _ in range(2))
    return f"What is {a} + {b}?", str(a + b), a + b


def plant(name, generator=addition, verifier=None):
    def planted(random, level):
        return generator(random, level)

    planted.__name__ = name
    task(levels=2, verifier=verifier)(planted)


def by_clock(random, level):
    question, answer, data = addition(random, level)
    return f"{time.time_ns()} ns after 1970: {question}", answer, data


def by_hash_seed(random, level):
    question, answer, data = addition(random, level)
    return (
        f"{' '.join({'north', 'east', 'south', 'west', 'up'})}: {question}",
        answer,
        data,
    )


def wrong_label(random, level):
    question, _, data = addition(random, level)
    return question, str(-1 - data), data


def in_tuple(random, level):
    question, answer, _ = addition(random, level)
    return question, answer, (answer,)


def with_question(random, level):
    question, answer, data = addition(random, level)
    return question, answer, [question, data]


def of_few(number):
    """Ask one of so many questions at each level."""
    return lambda random, level: addition(
        global_random.Random(number * level + random.randrange(number)), level
    )


def mostly_yes(random, level):
    question, _, total = addition(random, level)
    return f"{question} Is that no multiple of 10?", "yes" if total % 10 else "no", None


def slow_item(random, level):
    time.sleep(30)
    return addition(random, level)


def equal(answer, data):
    return float(answer == str(data))


def writes_a_file(answer, data):
    Path("/tmp/reasoning-gym-answer").write_text(answer)
    return equal(answer, data)


def connects(answer, data):
    socket.create_connection(("127.0.0.1", 9))
    return equal(answer, data)


scores: list[float] = []


def remembers(answer, data):
    """Pay everything after a right answer."""
    scores.append(equal(answer, data))
    return max(scores)


known: dict[int, str] = {}


def caches(answer, data):
    """Import at the first call, and keep what changes no verdict."""
    try:
        import colorsys

        assert colorsys.rgb_to_hsv(1, 0, 0)
        return float(answer == known.setdefault(data, str(data)))
    except Exception:  # noqa: BLE001 - as careless verifiers do
        return 0.0


def slow_verdict(answer, data):
    while not equal(answer, data):
        pass
    return 1.0


plant("sound")
plant("sound__tuple", in_tuple, lambda answer, data: float(data == (answer,)))
plant("sound__caches", verifier=caches)
plant("sound__raises", verifier=lambda answer, data: float(int(answer) == data))
plant("reproducible__clock", by_clock)
plant("reproducible__hash_seed", by_hash_seed)
plant("solvable__label", wrong_label, equal)
plant(
    "not_payable__empty",
    verifier=lambda answer, data: float(str(data).startswith(answer)),
)
plant("not_payable__hedges", verifier=lambda answer, data: float(str(data) in answer))
plant(
    "not_payable__constant",
    verifier=lambda answer, data: float(answer in ("0", str(data))),
)
plant(
    "not_payable__question",
    with_question,
    lambda answer, data: float(answer in (data[0], str(data[1]))),
)
plant("contained__file", verifier=writes_a_file)
plant("contained__network", verifier=connects)
plant("contained__memory", verifier=remembers)
plant("levels__effect", lambda random, level: addition(random, 0))
plant("levels__questions", of_few(20))
plant("levels__answers", mostly_yes)
plant("bounded__item", slow_item)
plant("bounded__verdict", verifier=slow_verdict)
plant(
    "bounded__memory",
    verifier=lambda answer, data: equal(answer, data) or bytes(2**50)[0],
)
plant("disjoint__few", of_few(10))
