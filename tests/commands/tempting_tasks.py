"""Own tasks without a fault that checks might take for faulty.

They were written as `careless_tasks` was. Solvers, a tolerance and a waiver came when `prove` asked
for them.
"""

import functools
import itertools
import math
import re

from reasoning_gym_environment import task


def within_one_percent(answer, data):
    try:
        value = float(answer)
    except ValueError:
        return 0.0
    return float(math.isfinite(value) and abs(value - data) <= abs(data) / 100)


@task(levels=6, verifier=within_one_percent, tolerance=0.01)
def circle_area(random, level):
    radius = random.randrange(10 ** (level + 3), 10 ** (level + 4)) / 7
    area = math.pi * radius**2
    return (
        f"What is the area of a circle of radius {radius:.4f}? 1 % is near enough.",
        f"{area:.2f}",
        area,
    )


@task(
    levels=6,
    verifier=within_one_percent,
    waive={"near_miss": "1 % is near enough"},
)
def ring_area(random, level):
    inner = random.randrange(10 ** (level + 3), 10 ** (level + 4))
    outer = inner + random.randrange(inner)
    area = math.pi * (outer**2 - inner**2)
    question = f"What is the area of a ring of the radii {inner} and {outer}? 1 % is near enough."
    return question, f"{area:.2f}", area


def longest_of(question, data):
    longest = ""
    for word in re.findall("[a-z]+", question.partition(":")[2]):
        longest = word if len(word) > len(longest) else longest
    return longest


@task(levels=6, solve=longest_of)
def longest_word(random, level):
    """The answer stands in the question, at a place that nothing gives away."""
    lengths = random.sample(range(2, 12 + 2 * level), level + 3)
    words = [
        "".join(random.choice("abcdefghijklmnop") for _ in range(length))
        for length in lengths
    ]
    return (
        f"Which is the longest of these words: {', '.join(words)}?",
        max(words, key=len),
        None,
    )


@task(levels=6)
def small_first_level(random, level):
    """125 questions at level 0, which multiplies three numbers from 1 to 5."""
    values = [random.randrange(1, 6 + 20 * level) for _ in range(3)]
    return f"What is {' * '.join(map(str, values))}?", str(math.prod(values)), None


def same_set(answer, data):
    return float(sorted(part.strip() for part in answer.split(",")) == data)


@task(levels=5, verifier=same_set)
def common_numbers(random, level):
    pool = range(10 * (level + 2))
    first = random.sample(pool, 6 + 2 * level)
    second = random.sample(pool, 6 + 2 * level) + first[:2]
    random.shuffle(second)
    common = sorted(map(str, set(first) & set(second)))
    text = f"Which numbers are in both lists: {first} and {second}? Separate them by commas."
    return text, ", ".join(common), common


def by_remainder(question, data):
    number, divisor = map(int, re.findall(r"\d+", question))
    return "no" if number % divisor else "yes"


@task(levels=5, solve=by_remainder)
def is_divisible(random, level):
    divisor = random.randrange(3, 10 ** (level + 1))
    right = random.random() < 0.5
    number = divisor * random.randrange(10, 10 ** (level + 3))
    if not right:
        number += random.randrange(1, divisor)
    text = f"Is {number} divisible by {divisor}? Answer yes or no."
    return text, "yes" if right else "no", None


def any_divisor(answer, data):
    text = answer.strip()
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        return 0.0
    number = int(text)
    return float(1 < number < data and data % number == 0)


@task(levels=6, verifier=any_divisor)
def some_divisor(random, level):
    primes = [
        n
        for n in range(11, 100 * (level + 2))
        if all(n % d for d in range(2, math.isqrt(n) + 1))
    ]
    a, b = random.sample(primes, 2)
    return f"Name a divisor of {a * b} other than 1 and itself.", str(a), a * b


def step_by_step(question, data):
    base, exponent, modulus = map(int, re.findall(r"\d+", question))
    return str(
        functools.reduce(lambda power, _: power * base % modulus, range(exponent), 1)
    )


@task(levels=6, solve=step_by_step)
def next_power(random, level):
    """The question stays as long as it is, while the work grows."""
    base = random.randrange(100, 1000)
    modulus = random.randrange(100, 1000)
    return (
        f"What is {base} ** {level + 2} modulo {modulus}?",
        str(pow(base, level + 2, modulus)),
        None,
    )


def reads_alike(answer, data):
    return float(answer.split() == data.split())


@task(levels=6, verifier=reads_alike)
def turned_grid(random, level):
    size = level + 2
    grid = [[random.randrange(10) for _ in range(size)] for _ in range(size)]
    turned = [[row[column] for row in reversed(grid)] for column in range(size)]
    shown, answer = (
        "\n".join(" ".join(map(str, row)) for row in rows) for rows in (grid, turned)
    )
    return f"Turn this grid clockwise by 90 degrees:\n{shown}", answer, answer


def turned(question, data):
    word = question.split()[1]
    return "".join(word[-place] for place in range(1, len(word) + 1))


@task(levels=6, solve=turned)
def accents_backwards(random, level):
    word = "".join(random.choice("éàüñçøößabcde") for _ in range(level + 4))
    return f"Write {word} backwards.", word[::-1], None


def by_counting(question, data):
    """The first letter is before the most others, by the pairs and what follows from them."""
    later = {letter: set() for letter in "ABCDEFGH"}
    for first, second in re.findall("([A-H]) is before ([A-H])", question):
        later[first].add(second)
    for middle in later:
        for first in later:
            if middle in later[first]:
                later[first] |= later[middle]
    return "".join(sorted(later, key=lambda letter: -len(later[letter])))


@task(levels=6, solve=by_counting)
def fewer_clues(random, level):
    """Higher levels show fewer of the comparisons, so that questions become shorter."""
    order = random.sample("ABCDEFGH", 8)
    pairs = list(itertools.combinations(order, 2))
    needed = list(itertools.pairwise(order))
    extra = [pair for pair in pairs if pair not in needed]
    clues = needed + random.sample(extra, len(extra) * (5 - level) // 5)
    random.shuffle(clues)
    text = " ".join(f"{first} is before {second}." for first, second in clues)
    return (
        f"{text} In which order do they stand? Write the letters without spaces.",
        "".join(order),
        None,
    )


def walks_to(answer, data):
    """Follow a path of letters around walls; any path that arrives is right."""
    size, walls, goal = data
    moves = {"U": (0, -1), "D": (0, 1), "L": (-1, 0), "R": (1, 0)}
    x = y = 0
    for letter in answer.strip().upper()[:1000]:
        if letter not in moves:
            return 0.0
        x, y = x + moves[letter][0], y + moves[letter][1]
        if not (0 <= x < size and 0 <= y < size) or (x, y) in walls:
            return 0.0
    return float((x, y) == tuple(goal))


@task(levels=5, verifier=walks_to)
def way_around(random, level):
    size = level + 7
    x = y = 0
    path = ""
    free = {(0, 0)}
    while (x, y) != (size - 1, size - 1):
        if y == size - 1 or (x < size - 1 and random.random() < 0.5):
            x, path = x + 1, path + "R"
        else:
            y, path = y + 1, path + "D"
        free.add((x, y))
    blocked = [(a, b) for a in range(size) for b in range(size) if (a, b) not in free]
    walls = sorted(random.sample(blocked, len(blocked) * 3 // 4))
    text = (
        f"On a grid of {size} by {size} fields, go from (0, 0) to ({size - 1}, {size - 1})"
        f" without entering {walls}. Write the moves as letters, U, D, L or R, without spaces."
    )
    return text, path, (size, walls, (size - 1, size - 1))
