"""Solvers of tasks: arithmetic."""

from __future__ import annotations

import ast
import calendar
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

from .solution import Property, Solution, Solver, UnreadableQuestionError, exactly

_NUMBER = re.compile(r"[-+]?(\d{1,3}(,\d{3})+|\d+)?(\.\d*)?([eE][-+]?\d{1,3})?(/\d+)?")
_OPERATIONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: Fraction(left) / right,
    ast.Pow: lambda left, right: Fraction(left) ** right,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}

_NO_ANSWER = Solution(accepts=lambda text: False, right=())


class _ContradictionError(Exception):
    """A question states what is not so."""


def _match(pattern: str, question: str) -> re.Match[str]:
    found = re.search(pattern, question, re.DOTALL)
    if not found:
        raise UnreadableQuestionError(f"{question!r} does not match {pattern!r}")
    return found


def _solution(
    accepts: Callable[[str], bool],
    right: Iterable[str],
    wrong: Iterable[str] = (),
    ambiguous: str = "",
) -> Solution:
    """Return a solution without repeated answers, and without wrong ones that it accepts."""
    return Solution(
        accepts=accepts,
        right=tuple(dict.fromkeys(right)),
        wrong=tuple(text for text in dict.fromkeys(wrong) if not accepts(text)),
        ambiguous=ambiguous,
    )


def _integers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _evaluate(expression: str) -> Any:
    """Return the exact value of an expression, with the usual precedence of its operators."""

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            return _OPERATIONS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            return (
                -value(node.operand)
                if isinstance(node.op, ast.USub)
                else value(node.operand)
            )
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            return Fraction(ast.get_source_segment(source, node) or "")
        raise UnreadableQuestionError(f"not arithmetic: {ast.dump(node)}")

    source = expression.strip()
    try:
        return value(ast.parse(source, mode="eval").body)
    except SyntaxError as error:
        raise UnreadableQuestionError(f"not an expression: {expression!r}") from error


def _read_number(text: str) -> Fraction | None:
    """Return a number written in any usual form, or None if the text is not one."""
    plain = text.strip().replace("\u2212", "-").strip("$")
    if not _NUMBER.fullmatch(plain):
        return None
    try:
        return Fraction(plain.replace(",", ""))
    except (ValueError, ZeroDivisionError):
        return None


def _decimal(value: Fraction, *, places: int = 0) -> str:
    """Return a terminating decimal, with at least this many places; else a fraction."""
    if 10**400 % value.denominator:
        return str(value)
    while (value * 10**places).denominator != 1:
        places += 1
    digits = str(abs(value.numerator) * 10**places // value.denominator).zfill(
        places + 1
    )
    sign = "-" if value < 0 else ""
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)


def _rounded(value: Fraction, digits: int) -> Fraction:
    """Return a number to this many significant digits, rounding up from the half."""
    unit = _unit(value, digits)
    whole = math.floor(abs(value) / unit + Fraction(1, 2)) * unit
    return whole if value > 0 else -whole


def _unit(value: Fraction, digits: int) -> Fraction:
    """Return the place value of the last of this many significant digits."""
    exponent = 0
    while abs(value) >= Fraction(10) ** (exponent + 1):
        exponent += 1
    while 0 < abs(value) < Fraction(10) ** exponent:
        exponent -= 1
    return Fraction(10) ** (exponent - digits + 1)


def _number(
    *values: Fraction | int, wrong: Sequence[str] = (), ambiguous: str = ""
) -> Solution:
    """Return a solution that accepts these numbers, in any usual form."""
    known = [Fraction(value) for value in dict.fromkeys(values)]
    right = [_decimal(value) for value in known]
    right += [_decimal(known[0], places=1), _with_separators(right[0])]
    wrong = wrong or [_decimal(known[0] + step) for step in (1, -1, Fraction(1, 100))]
    return _solution(lambda text: _read_number(text) in known, right, wrong, ambiguous)


def _with_separators(text: str) -> str:
    whole, point, rest = text.partition(".")
    if "/" in text or abs(int(whole)) < 1000:
        return text
    return f"{int(whole):,}{point}{rest}"


def _basic_arithmetic(question: str) -> Solution:
    return _number(_evaluate(_match(r"Calculate (.*)\.$", question.strip())[1]))


def _bitwise_arithmetic(question: str) -> Solution:
    value = _evaluate(_match(r"\n(.*)$", question.strip())[1])
    right = hex(value)
    wrong = [hex(value + 1), hex(-value or 1), f"{value & 0xFFFFFFFF:#x}"]

    def accepts(text: str) -> bool:
        try:
            return bool(int(text.strip(), 16) == value)
        except ValueError:
            return False

    digits = right.replace("0x", "").upper().replace("-", "")
    return _solution(accepts, [right, f"{'-' if value < 0 else ''}0x{digits}"], wrong)


_DAYS = tuple(calendar.day_name)
_MONTHS = tuple(calendar.month_name)
_DATE = rf"(?:({'|'.join(_DAYS)}), )?({'|'.join(_MONTHS[1:])}) (\d+)(?:, (\d{{4}}))?"
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_LEAP_YEAR = "the year may be a leap year"
_ORDER = "the month and the day may stand in either order"


def _dates(question: str) -> list[date]:
    """Return the dates of a question; one without a year is of the next date's year."""
    found = re.findall(_DATE, question)
    if not found or not found[-1][3]:
        raise UnreadableQuestionError(f"no date in {question!r}")
    dates: list[date] = []
    for weekday, month, day, year in reversed(found):
        one = date(int(year or dates[0].year), _MONTHS.index(month), int(day))
        if weekday and _DAYS[one.weekday()] != weekday:
            raise _ContradictionError(f"{one} is not a {weekday}")
        dates.insert(0, one)
    return dates


def _weekday(*numbers: int, ambiguous: str = "") -> Solution:
    names = dict.fromkeys(_DAYS[number % 7] for number in numbers)
    wrong = [name for name in _DAYS if name not in names]
    reason = ambiguous if len(names) > 1 else ""
    return exactly(*names, wrong=[*wrong, next(iter(names))[:3]], ambiguous=reason)


def _weekday_of_date(question: str) -> Solution:
    numbers = re.search(r"(\d+)/(\d+)/(\d+)", question)
    if not numbers:
        return _weekday(_dates(question)[0].weekday())
    first, second, year = (int(number) for number in numbers.groups())
    both = {(first, second): None, (second, first): None}
    days = [date(year, month, day).weekday() for month, day in both if month < 13]
    return _weekday(*days, ambiguous=_ORDER)


def _weekday_after(question: str) -> Solution:
    days = int(_match(r"(\d+)[ -]days?\b", question)[1])
    backward = re.search(r"backward|ago|before", question)
    return _weekday(_dates(question)[0].weekday() + (-days if backward else days))


def _weekday_in_year(question: str) -> Solution:
    """Solve what the weekday of January 1 determines, but for the leap day."""
    statement, asked = re.split(r", (?=what|which|name)", question)[:2]
    first = _DAYS.index(_match("|".join(_DAYS), statement)[0])
    found = _match(_DATE, asked)
    month, day = _MONTHS.index(found[2]), int(found[3])
    years = [2024] if (month, day) == (2, 29) else [2023, 2024]
    offsets = [(date(year, month, day) - date(year, 1, 1)).days for year in years]
    return _weekday(*(first + offset for offset in offsets), ambiguous=_LEAP_YEAR)


def _days_between(question: str) -> Solution:
    start, end = _dates(question)
    business = re.search(r"business days|excluding weekends", question)
    pattern = rf"(?:many times does|many|occurrences of) ({'|'.join(_DAYS)})s?\b"
    wanted = range(5) if business else [_DAYS.index(_match(pattern, question)[1])]
    count = (end - start).days + 1
    if count < 1:
        raise UnreadableQuestionError(f"{end} is before {start}")
    return _number(
        sum((start + timedelta(days)).weekday() in wanted for days in range(count))
    )


def _ordinal_weekday(question: str) -> Solution:
    ordinal, name = _match(
        rf"({'|'.join(_ORDINALS)}|last) ({'|'.join(_DAYS)})", question
    ).groups()
    month, year = _match(rf"({'|'.join(_MONTHS[1:])}) (\d{{4}})", question).groups()
    _, length = calendar.monthrange(int(year), _MONTHS.index(month))
    every = range(1, length + 1)
    first = date(int(year), _MONTHS.index(month), 1).weekday()
    days = [day for day in every if (first + day - 1) % 7 == _DAYS.index(name)]
    index = -1 if ordinal == "last" else _ORDINALS.index(ordinal)
    return _number(days[index] if index < len(days) else -1)


def _leap_year(question: str) -> Solution:
    year = int(_match(r"(\d+)", question)[1])
    names = ("Yes", "No") if calendar.isleap(year) else ("No", "Yes")
    return exactly(names[0], wrong=names[1:])


_CALENDAR: Mapping[str, Solver] = {
    "leap year": _leap_year,
    "ordinal does not exist": _ordinal_weekday,
    "business|weekends|how many|How many|occurrences": _days_between,
    r"day of the year was|January 1(st,)? (fell|name)|is January 1st": _weekday_in_year,
    r"\d+[ -]day": _weekday_after,
    r"\d{4}": _weekday_of_date,
}


def _calendar_arithmetic(question: str) -> Solution:
    for pattern, solver in _CALENDAR.items():
        if re.search(pattern, question):
            try:
                return solver(question)
            except _ContradictionError:
                return _NO_ANSWER
    raise UnreadableQuestionError(question)


def _chain_sum(question: str) -> Solution:
    return _number(_evaluate(_match(r": (.*)=\s*$", question)[1]))


def _count_bits(question: str) -> Solution:
    return _number(bin(int(_match(r"number (\d+)\?", question)[1])).count("1"))


def _decimal_arithmetic(question: str) -> Solution:
    found = _match(
        r"maximum of (\d+) significant digits, rounding up.*\n(.*) = \?", question
    )
    digits, value = int(found[1]), Fraction(_evaluate(found[2]))
    right = _rounded(value, digits)
    places = max(len(number) for number in re.findall(r"\.(\d+)", found[2]))
    unit = _unit(value, digits)
    # More digits than the question asks for may follow.
    steps = (unit, -unit, max(unit, Fraction(1, 10**places)))
    return _number(right, wrong=[_decimal(right + step) for step in steps])


def _decimal_chain_sum(question: str) -> Solution:
    value = Fraction(_evaluate(_match(r": (.*)=\s*$", question)[1]))
    places = len(_decimal(value).partition(".")[2])
    steps = (
        Fraction(1, 10**places),
        -Fraction(1, 10**places),
        Fraction(1, 10 ** (places + 1)),
        1,
    )
    return _number(value, wrong=[_decimal(value + step) for step in steps])


def _fraction(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


def _dice(question: str) -> Solution:
    rolls, least = _match(
        r"dice: (.*)\. What are the odds of rolling (\d+) or", question
    ).groups()
    ways = {0: 1}
    for count, sides in re.findall(r"(\d+)d(\d+)", rolls):
        for _ in range(int(count)):
            after: dict[int, int] = {}
            for (total, number), face in product(
                ways.items(), range(1, int(sides) + 1)
            ):
                after[total + face] = after.get(total + face, 0) + number
            ways = after
    good, all_ways = (
        sum(n for total, n in ways.items() if total >= int(least)),
        sum(ways.values()),
    )
    value = Fraction(good, all_ways)
    more = Fraction(good - ways.get(int(least), 0), all_ways)
    wrong = [
        _fraction(more),
        _fraction(1 - value),
        f"{2 * value.numerator}/{2 * value.denominator}",
    ]
    right = [_fraction(value), *([str(value)] if value.denominator == 1 else [])]
    return exactly(*right, wrong=wrong)


_FRACTION = re.compile(r"\d+/\d+|\\d?frac\{\d+\}\{\d+\}")


def _fraction_simplification(question: str) -> Solution:
    pattern = r"fraction \$?(?:\\d?frac\{)?(\d+)(?:/|\}\{)(\d+)\}?\$? to its lowest"
    top, bottom = (int(number) for number in _match(pattern, question).groups())
    value = Fraction(top, bottom)
    forms = [
        "{}/{}",
        "${}/{}$",
        r"\frac{{{}}}{{{}}}",
        r"$\frac{{{}}}{{{}}}$",
        r"$\dfrac{{{}}}{{{}}}$",
    ]
    wrong = [
        f"{top}/{bottom}",
        _fraction(1 / value),
        f"{value.numerator + 1}/{value.denominator}",
    ]

    def accepts(text: str) -> bool:
        plain = re.sub(r"[\s$]", "", text).strip(".")
        return bool(_FRACTION.fullmatch(plain)) and _integers(plain) == list(
            value.as_integer_ratio()
        )

    right = [form.format(value.numerator, value.denominator) for form in forms]
    return _solution(accepts, right, wrong)


def _gcd(question: str) -> Solution:
    return _number(
        math.gcd(*_integers(_match(r"numbers: ([\d, ]+)\. Give", question)[1]))
    )


def _lcm(question: str) -> Solution:
    numbers = _integers(_match(r"numbers: ([\d, ]+)$", question.strip())[1])
    value = math.lcm(*numbers)
    return _number(value, wrong=[str(value + 1), str(2 * value), str(max(numbers))])


_LEGS = {
    0: "flatworm, jellyfish, leech, sea slug, snake",
    2: "bird, chicken, duck, human",
    4: "cat, cow, deer, dog, elephant, giraffe, horse, lion, sheep, tiger",
    6: "ant, bee, beetle, butterfly, cockroach, cricket, firefly, grasshopper, insect, "
    "praying mantis, wasp",
    8: "scorpion, spider",
    10: "crab, lobster, shrimp",
    14: "woodlouse",
}
_LEGS_OF = {name: legs for legs, names in _LEGS.items() for name in names.split(", ")}


def _leg_counting(question: str) -> Solution:
    """Solve with what zoology calls a leg; a starfish has five arms and is counted both ways."""
    animals = _match(r"if you have (.*)\?", question)[1].split(", ")
    total = starfish = 0
    for animal in animals:
        count, name = animal.split(" ", 1)
        if name in {"starfish", "starfishs"}:
            starfish += int(count)
            continue
        legs = _LEGS_OF.get(name, _LEGS_OF.get(name[:-1]))
        if legs is None:
            raise UnreadableQuestionError(f"legs of {name}")
        total += int(count) * legs
    return _number(
        *(total + 5 * starfish, total) if starfish else (total,),
        ambiguous="a starfish has five arms or no legs" if starfish else "",
    )


def _number_format(question: str) -> Solution:
    found = _match(
        r"pick the (largest|smallest) number of the following candidates: (.*)$",
        question,
    )
    texts = found[2].split()
    values = [Fraction(text.replace(",", "")) for text in texts]
    best = (max if found[1] == "largest" else min)(values)
    right = [text for text, value in zip(texts, values, strict=True) if value == best]

    def accepts(text: str) -> bool:
        number = _read_number(text)
        return number is not None and abs(number - best) <= abs(best) / 10**12

    others = sorted(
        {value for value in values if value != best},
        key=lambda value: abs(value - best),
    )
    wrong = [_decimal(value) for value in (others[:2] + others[-1:])]
    return _solution(accepts, [*right, _decimal(best)], wrong)


_SIGN = "the minus sign may belong to the base or to the power"


def _power_function(question: str) -> Solution:
    found = _match(
        r"Compute (-?[\d.]+)\^(-?\d+)\. Return .* to (\d+) significant", question
    )
    base, exponent, digits = Fraction(found[1]), int(found[2]), int(found[3])
    power = base**exponent
    values = [power] if base > 0 or exponent % 2 else [power, -power]

    def text_of(value: Fraction) -> str:
        return f"{float(_rounded(value, digits)):.{digits - 1}e}"

    def accepts(text: str) -> bool:
        number = _read_number(text)
        return number is not None and any(
            number == _rounded(value, digits)
            or abs(number - value) < abs(value) / 10**9
            for value in values
        )

    right = [text_of(value) for value in values]
    wrong = [
        text_of(-power),
        text_of(power * 101 / 100),
        text_of(power * 10),
        text_of(1 / power),
    ]
    return _solution(accepts, right, wrong, _SIGN if values[1:] else "")


_TIMES = "\u00d7"


def _prime_factorization(question: str) -> Solution:
    number = int(_match(r"factorization of (\d+)\. Write", question)[1])
    factors: list[int] = []
    rest, factor = number, 2
    while rest > 1:
        while rest % factor == 0:
            factors.append(factor)
            rest //= factor
        factor += 1

    def accepts(text: str) -> bool:
        parts = [part.strip() for part in text.split(_TIMES)]
        return (
            all(part.isdecimal() for part in parts)
            and sorted(map(int, parts)) == factors
        )

    right = [sign.join(map(str, factors)) for sign in (f" {_TIMES} ", _TIMES)]
    right.append(f" {_TIMES} ".join(map(str, reversed(factors))))
    wrong = [
        str(number),
        f"1 {_TIMES} {right[0]}",
        f" {_TIMES} ".join(map(str, sorted(set(factors)))),
    ]
    wrong += [f" {_TIMES} ".join(map(str, [factors[0] * factors[-1], *factors[1:-1]]))]
    return _solution(accepts, right, wrong)


def _products(question: str) -> Solution:
    return _number(_evaluate(_match(r"multiplication: (.*)\. Give", question)[1]))


_CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f")
_DAY_FORMS = (
    "%Y-%m-%d",
    "%Y-%m-%d (%A)",
    "%d %B %Y",
    "%B %d, %Y",
    "%A, %B %d, %Y",
    "%a %b %d %Y",
    "%m/%d/%Y",
    "%d/%m/%Y",
)
_MOMENTS = (
    *_CLOCKS,
    *_DAY_FORMS,
    *(
        f"{day}{joint}{clock}{zone}"
        for day, joint, clock, zone in product(
            _DAY_FORMS, (" ", ", ", " at "), _CLOCKS, ("", " %z")
        )
    ),
)
_DURATION = re.compile(
    r"(?:(\d+) days?)?(?:, )?(?:(\d+):(\d\d)(?::(\d\d(?:\.\d+)?))?)?"
)


def _durations(start: str, end: str) -> list[timedelta]:
    """Return the differences under each form that both texts have."""
    found: dict[timedelta, None] = {}
    for form in _MOMENTS:
        try:
            one, other = (datetime.strptime(text, form) for text in (start, end))
        except ValueError:
            continue
        days = 1 if other < one and form in _CLOCKS else 0
        found[other - one + timedelta(days)] = None
    if not found:
        raise UnreadableQuestionError(f"{start} to {end}")
    return list(found)


def _written(duration: timedelta, form: str) -> str:
    minutes, seconds = divmod(duration.seconds, 60)
    hours = minutes // 60 + (0 if "D" in form else 24 * duration.days)
    text = form.replace("mmm", f"{duration.microseconds // 1000:03}").replace(
        "SS", f"{seconds:02}"
    )
    text = text.replace("HH", f"{hours:02}").replace("MM", f"{minutes % 60:02}")
    return text.replace("D", str(duration.days))


def _time_intervals(question: str) -> Solution:
    """Solve in the form asked for; what is smaller than its last unit may be cut or rounded.

    What began on one day and ended on another took the days between, or both of them as well.
    """
    pattern = (
        r"(?:(?:began|started|departed) at|between|from) (.*?) "
        r"(?:and \w+ at|and|to) (.*?)[.?] "
    )
    start, end = _match(pattern, question).groups()
    form = _match(r" in ([DHMS][^.]*(?:\.mmm)?)\.$", question.strip())[1]
    unit = timedelta(minutes=1) if form.endswith("HH:MM") else timedelta(milliseconds=1)
    durations = _durations(start, end)
    if durations[0] < timedelta(0):
        return _NO_ANSWER
    rounded = [(duration + unit / 2) // unit * unit for duration in durations]
    is_event = form == "D days" and re.search("(began|started|departed) at", question)
    both = [duration + timedelta(1) for duration in durations if is_event]
    texts = dict.fromkeys(
        _written(duration, form) for duration in [*durations, *rounded, *both]
    )
    known = {_seconds(text) for text in texts}
    first = durations[0]
    steps = (unit, timedelta(hours=1), timedelta(days=1), timedelta(days=2))
    wrong = [_written(first + step, form) for step in steps]
    reason = _ORDER if durations[1:] else "the time may be cut or rounded to minutes"
    reason = "the first and the last day may both count" if both else reason
    reason = reason if len(texts) > 1 else ""
    return _solution(lambda text: _seconds(text) in known, texts, wrong, reason)


def _seconds(text: str) -> Fraction | None:
    found = _DURATION.fullmatch(text.strip(" ."))
    if not found or not found[0]:
        return None
    days, hours, minutes, seconds = (Fraction(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _coin_flip(question: str) -> Solution:
    """Solve exactly; ten significant digits of a decimal are enough."""
    pattern = r"getting (at least|exactly) (\d+) heads in (\d+) fair"
    kind, heads, flips = _match(pattern, question).groups()
    counts = [int(heads)] if kind == "exactly" else range(int(heads), int(flips) + 1)
    value = Fraction(
        sum(math.comb(int(flips), count) for count in counts), 2 ** int(flips)
    )

    def accepts(text: str) -> bool:
        number = _read_number(text)
        return number is not None and abs(number - value) <= value / 10**9

    wrong = [
        _decimal(1 - value),
        _decimal(value + Fraction(1, 1000)),
        _decimal(value * 10),
    ]
    right = [_decimal(value), str(value), _decimal(_rounded(value, 10))]
    return _solution(accepts, right, wrong)


SOLVERS: Mapping[str, Solver] = {
    "basic_arithmetic": _basic_arithmetic,
    "bitwise_arithmetic": _bitwise_arithmetic,
    "calendar_arithmetic": _calendar_arithmetic,
    "chain_sum": _chain_sum,
    "coin_flip": _coin_flip,
    "count_bits": _count_bits,
    "decimal_arithmetic": _decimal_arithmetic,
    "decimal_chain_sum": _decimal_chain_sum,
    "dice": _dice,
    "fraction_simplification": _fraction_simplification,
    "gcd": _gcd,
    "lcm": _lcm,
    "leg_counting": _leg_counting,
    "number_format": _number_format,
    "power_function": _power_function,
    "prime_factorization": _prime_factorization,
    "products": _products,
    "time_intervals": _time_intervals,
}

_TERM = r"\(*(?:\d+(?:\.\d+)?|\.\d+)\)*"
_EXPRESSION = rf"{_TERM}(?:\s*[-+*/]\s*{_TERM})*"
_WORD = re.compile(r"/?[A-Za-z_'\u2019-]*[A-Za-z][A-Za-z_'\u2019-]*\.?")
_SYMBOLS = (
    (r"(?<=\d),(?=\d{3})|[$\u20ac\u00a3]", ""),
    (rf"{_TIMES}|\s+x\s+", " * "),
    (r"\u00f7\s*(\d+)/(\d+)", r" * \2 / \1"),
    ("\u00f7", "/"),
    (r"(\d)\s*\(", r"\1 * ("),
    (r"(\d+(?:\.\d+)?)\s*%", r"(\1/100)"),
)


def _equations(derivation: str) -> Iterator[tuple[str, str]]:
    """Yield both sides of the equations between numbers of a derivation in words."""
    for line in derivation.splitlines():
        for symbol, replacement in _SYMBOLS:
            line = re.sub(symbol, replacement, line)
        parts = [] if re.search(r"\dx\b", line) else line.split("=")
        for part, following in pairwise(parts):
            left = re.search(rf"{_EXPRESSION}\s*$", _WORD.sub(" ", part))
            right = re.match(rf"\s*-?\s*{_EXPRESSION}", following)
            if left and right and re.search(r"[-+*/]", left[0]):
                yield left[0], right[0]


def _false_equation(entry: Mapping[str, Any]) -> str:
    """Return the first equation of the derivation that does not hold, or what else is wrong."""
    if "more likely is it (expressed as a percentage)" in entry["question"]:
        return "a difference in percentage points or in percent"
    derivation = entry["metadata"]["answer_cot"]
    for left, right in _equations(derivation):
        if abs(float(_evaluate(left) - _evaluate(right))) > _ROUNDING:
            return f"{left.strip()} is not {right.strip()}"
    result = derivation.rpartition("####")[2]
    if _read_number(result) != _read_number(entry["answer"]):
        return f"the derivation ends with {result.strip()}"
    return "the answer is below zero" if entry["answer"].startswith("-") else ""


_ROUNDING = 1e-9

PROPERTIES: Mapping[str, Property] = {
    "gsm_symbolic": Property(
        reason="a story has to be understood",
        checked="every equation of the library's derivation, its result, and the result's sign; "
        "no percentage of percentages",
        violation=_false_equation,
    ),
}
