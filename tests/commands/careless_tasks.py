"""Own tasks with one fault each, as somebody would write them by mistake.

They were written by the page for authors alone, before their writer had read the checks.
"""

import math
import re
import time
import unicodedata

from reasoning_gym_environment import task

WORDS = [
    "café",
    "naïve",
    "château",
    "über",
    "señor",
    "élan",
    "fête",
    "piñata",
    "jalapeño",
    "façade",
    "crème",
    "brûlée",
]


def numbers(random, level):
    return [random.randrange(10, 1000) for _ in range(level + 2)]


@task(levels=8)
def hint_at_end(random, level):
    values = numbers(random, level)
    answer = str(sum(values))
    return f"Add {', '.join(map(str, values))}. (Expected: {answer})", answer, None


@task(levels=8)
def hint_at_start(random, level):
    values = sorted(numbers(random, level))
    answer = str(values[-1] - values[0])
    text = f"[key={answer}] What is the range of {random.sample(values, len(values))}?"
    return text, answer, None


@task(levels=8)
def hint_in_the_middle(random, level):
    """The step before the question already states the result."""
    values = numbers(random, level)
    answer = str(sum(values))
    shown = " + ".join(map(str, values))
    return f"Tom wrote {shown} = {answer} on the board. What is {shown}?", answer, None


@task(levels=8)
def fewer_terms_higher_up(random, level):
    values = [random.randrange(10, 1000) for _ in range(10 - level)]
    return f"What is {' + '.join(map(str, values))}?", str(sum(values)), None


@task(levels=6)
def smaller_numbers_higher_up(random, level):
    a, b = (random.randrange(10 ** (7 - level), 10 ** (8 - level)) for _ in range(2))
    return f"What is {a} times {b}?", str(a * b), None


@task(levels=4)
def endless_answer(random, level):
    digit = random.randrange(1, 10)
    count = 600_000 + random.randrange(1000) * (level + 1)
    return f"Write the digit {digit} exactly {count} times.", str(digit) * count, None


def digits_only(answer, data):
    return float(bool(re.fullmatch(r"([0-9]+)+", answer)) and int(answer) == data)


@task(levels=8, verifier=digits_only)
def slow_pattern(random, level):
    values = numbers(random, level)
    return f"What is {' + '.join(map(str, values))}?", str(sum(values)), sum(values)


@task(levels=6)
def decomposed_label(random, level):
    words = [random.choice(WORDS) for _ in range(level + 2)]
    text = unicodedata.normalize("NFD", " ".join(words))
    return (
        f"Write these words in capital letters: {' '.join(words)}",
        text.upper(),
        None,
    )


@task(levels=8)
def float_noise(random, level):
    values = [random.randrange(1, 100 * (level + 1)) / 10 for _ in range(level + 3)]
    return f"What is {' + '.join(map(str, values))}?", str(sum(values)), None


@task(levels=8)
def spaced_label(random, level):
    values = numbers(random, level)
    return f"What is {' + '.join(map(str, values))}?", f"{sum(values)} ", None


@task(levels=8)
def tagged_label(random, level):
    values = numbers(random, level)
    return (
        f"What is {' + '.join(map(str, values))}?",
        f"<answer>{sum(values)}</answer>",
        None,
    )


def equal_area(answer, data):
    return float(float(answer) == data)


@task(levels=8, verifier=equal_area)
def rounded_label(random, level):
    radius = random.randrange(1, 100 * 2**level)
    area = math.pi * radius**2
    return (
        f"What is the area of a circle of radius {radius}, to two decimals?",
        f"{area:.2f}",
        area,
    )


def contains(answer, data):
    return float(data in answer)


@task(levels=8, verifier=contains)
def contained_label(random, level):
    values = numbers(random, level)
    largest = str(max(values))
    return f"Which is the largest of {', '.join(map(str, values))}?", largest, largest


def close(answer, data):
    try:
        return 0.0 if abs(float(answer) - data) > 0.001 else 1.0
    except ValueError:
        return 0.0


@task(levels=8, verifier=close)
def not_a_number_passes(random, level):
    values = numbers(random, level)
    mean = sum(values) / len(values)
    return (
        f"What is the mean of {values}, to three decimals?",
        f"{mean:.3f}",
        round(mean, 3),
    )


def begins(answer, data):
    return float(data.startswith(answer.strip()))


@task(levels=8, verifier=begins)
def nothing_passes(random, level):
    word = "".join(random.choice("abcdefghij") for _ in range(level + 4))
    return f"Write '{word}' backwards.", word[::-1], word[::-1]


@task(levels=8)
def mostly_yes(random, level):
    values = random.sample(range(10 ** (level + 1)), 2)
    total = sum(values) if random.random() < 0.9 else sum(values) + 1
    answer = "yes" if total == sum(values) else "no"
    return f"Is {values[0]} + {values[1]} = {total}? Answer yes or no.", answer, None


@task(levels=6)
def hidden_modulus(random, level):
    a, b = random.randrange(2, 5), random.randrange(2, 5 + level)
    modulus = random.choice([7, 11, 13])
    return f"Compute {a} to the power {b} in the ring.", str(a**b % modulus), None


@task(levels=6)
def of_the_clock(random, level):
    hours = random.randrange(1, 100 * (level + 1))
    now = time.time_ns() // 1000 % 24_000_000
    return (
        f"It is {now} microseconds past. What is it {hours} later?",
        str(now + hours),
        None,
    )


@task(levels=8)
def level_forgotten(random, level):
    a, b = random.randrange(1000), random.randrange(1000)
    return f"What is {a} + {b}?", str(a + b), None


@task(levels=8)
def raises_at_the_top(random, level):
    count = random.randrange(2, 5)
    values = [random.randrange(1, 100 - level * 14) for _ in range(count)]
    return (
        f"What is the product of {values}?",
        str(math.prod(values) // (7 - level)),
        None,
    )


@task(levels=8)
def wrong_now_and_then(random, level):
    """One label in thirty is wrong, and nothing can know."""
    values = numbers(random, level)
    total = sum(values) + (random.randrange(30) == 0)
    return f"What is {' + '.join(map(str, values))}?", str(total), None


def added_up(question, data):
    return str(sum(map(int, re.findall("[0-9]+", question))))


@task(levels=8, solve=added_up)
def wrong_beside_a_solver(random, level):
    return wrong_now_and_then(random, level)


@task(levels=8)
def odd_space_in_label(random, level):
    values = [1000 * value for value in numbers(random, level)]
    answer = f"{sum(values):,}".replace(",", "\u00a0")
    return f"What is {' + '.join(map(str, values))}?", answer, None


def in_points(answer, data):
    return 5 if answer.strip() == data else 0


@task(levels=8, verifier=in_points)
def five_points(random, level):
    values = numbers(random, level)
    return (
        f"What is {' + '.join(map(str, values))}?",
        str(sum(values)),
        str(sum(values)),
    )


def whole(answer, data):
    return float(int(answer) == data)


@task(levels=8, verifier=whole)
def raises_on_words(random, level):
    values = numbers(random, level)
    return f"What is {' + '.join(map(str, values))}?", str(sum(values)), sum(values)


@task(levels=6)
def closing_tag_in_label(random, level):
    tags = [random.choice(["p", "b", "answer", "li"]) for _ in range(level + 2)]
    opened = "".join(f"<{tag}>" for tag in tags)
    closed = "".join(f"</{tag}>" for tag in reversed(tags))
    return f"Close all tags of {opened}{random.randrange(10**6)}", closed, None


@task(levels=5)
def ten_questions(random, level):
    number = random.randrange(10 * level, 10 * level + 10)
    return f"What is the square of {number}?", str(number**2), None


def half_for_trying(answer, data):
    return 1.0 if answer.strip() == data else 0.5


@task(levels=8, verifier=half_for_trying)
def half_for_anything(random, level):
    values = numbers(random, level)
    return (
        f"What is {' - '.join(map(str, values))}?",
        str(values[0] - sum(values[1:])),
        str(values[0] - sum(values[1:])),
    )
