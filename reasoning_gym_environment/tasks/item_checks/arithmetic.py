"""Checks of items of the category arithmetic."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction

from ...records import Fault
from .faults import Entry, ambiguous, false_label, unanswerable


def _exact(expression: str) -> Fraction:
    """Return the value of an expression of numbers, signs and parentheses."""
    tokens = re.findall(r"[\d.]+|[-+*/()]", expression)[::-1]
    priorities = {"+": 1, "-": 1, "*": 2, "/": 2}

    def value_of(priority: int) -> Fraction:
        token = tokens.pop()
        if token == "-":
            value = -value_of(3)
        elif token == "(":
            value = value_of(0)
            tokens.pop()
        else:
            value = Fraction(token)
        while tokens and priorities.get(tokens[-1], 0) > priority:
            sign = tokens.pop()
            operand = value_of(priorities[sign])
            if sign in "+-":
                value += operand if sign == "+" else -operand
            else:
                value *= operand if sign == "*" else 1 / operand
        return value

    return value_of(0)


def basic_arithmetic(entry: Entry) -> Fault | None:
    """Find quotients that the library cut to integers."""
    value = _exact(entry["metadata"]["expression"])
    return (
        None if value == int(entry["answer"]) else false_label(f"the value is {value}")
    )


def _two_orders() -> Fault:
    return ambiguous("the month and the day may stand in either order")


def _day_first(day: datetime) -> datetime:
    """Return a date with its month and day exchanged; the same date if there is none."""
    return day.replace(month=day.day, day=day.month) if day.day < 13 else day


def calendar_arithmetic(entry: Entry) -> Fault | None:
    """Find end dates in another year than the one named, and dates with two readings."""
    metadata = entry["metadata"]
    if metadata["task"] == "count_business_days":
        if metadata["start_date"][:4] == metadata["end_date"][:4]:
            return None
        return unanswerable(
            f"the question names {metadata['end_date']} with the year of the start"
        )
    if metadata["task"] == "weekday_of_date_from_first_date":
        if int(metadata["target_date"][5:7]) < 3:
            return None
        return ambiguous("the year may be a leap year")
    if metadata["task"] == "weekday_of_date" and "/" in entry["question"]:
        day = datetime.fromisoformat(metadata["target_date"])
        if _day_first(day).weekday() != day.weekday():
            return _two_orders()
    return None


def decimal_arithmetic(entry: Entry) -> Fault | None:
    """Find results that the library rounded before the end."""
    header, expression = entry["question"].split("\n")
    value = _exact(expression.removesuffix("= ?"))
    digits = re.findall(r"(\d+) significant", header)[0]
    with localcontext(Context(prec=100)):
        quotient = Decimal(value.numerator) / value.denominator
    rounded = Context(prec=int(digits), rounding=ROUND_HALF_UP).plus(quotient)
    if rounded == Decimal(entry["answer"]):
        return None
    return false_label(f"to {digits} digits the value is {rounded}")


def gsm_symbolic(entry: Entry) -> Fault | None:
    """Find answers that were cut to integers, and an age below zero."""
    if entry["answer"].startswith("-"):
        return unanswerable("the answer is below zero")
    # The numbers that the library cuts to integers on the way, and the answers.
    formulas: Mapping[str, Callable[..., Fraction]] = {
        r"(\d+) tubes .* and (\d+) tubes .* half .* three times as": lambda a, b: (
            a / 2 + 3 * b
        ),
        r"class of (\d+) students, (\d+)% .* remaining class, (\d+)% of": (
            lambda students, first_percent, second_percent: (
                students
                * (first_percent + (100 - first_percent) * second_percent / 100)
                / 100
            )
        ),
        r"for (\d+) cents and .* for (\d+) cents.* spent \D(\d+) and got (\d+) .* had (\d+)% of": (
            lambda first_price, second_price, money, count, percent_left: (
                (money * (100 - percent_left) - count * first_price) / second_price
            )
        ),
        r"includes (\d+) .* on the beach and (\d+) .* twice the rate .* If (\d+) minutes": (
            lambda beach, sidewalk, minutes: minutes + sidewalk * minutes / (2 * beach)
        ),
        r"has (\d+) jars .* can decorate (\d+) .* holds (\d+)": lambda a, b, held: (
            a * b / held
        ),
        r"a pen pal with (\d+) .* with (\d+) .* send (\d+) .* are (\d+) pages .* every (\d+) m": (
            lambda pals, lost, letters, pages, minutes: (
                (pals - lost) * letters * pages * minutes / 60
            )
        ),
        r"there are (\d+) \w+ cards, and (\d+)% more .* cards\. \w+ cards are as many as": (
            lambda fewer_cards, percent_more: 2 * fewer_cards * (2 + percent_more / 100)
        ),
        r"has \D([\d.]+) and wants to buy (\d+) .* from a bin .* costs \D([\d.]+\d)": (
            lambda money, count, price: money - count * price
        ),
    }
    if "How much more likely" in entry["question"]:
        return ambiguous("percentage points, or percent of the smaller probability")
    for pattern, formula in formulas.items():
        match = re.search(pattern, entry["question"])
        if match:
            value = formula(*(Fraction(number) for number in match.groups()))
            if value != Fraction(entry["answer"]):
                return false_label(f"the value is {value}")
    return None


def power_function(entry: Entry) -> Fault | None:
    """Find even powers of a negative number, which the question writes without brackets."""
    if entry["metadata"]["base"] > 0 or entry["metadata"]["exponent"] % 2:
        return None
    return ambiguous("the minus sign may belong to the power")


def time_intervals(entry: Entry) -> Fault | None:
    """Find labels that lack the time of the day or a millisecond, and ends before the start."""
    metadata = entry["metadata"]
    form = entry["metadata"]["expected_format"]
    stamp = r"(\d{4}-\d\d-\d\d) \(\w+\) (\d\d:\d\d:\d\d) ([-+]\d\d)(\d\d)"
    stamps = [
        f"{day}T{time}{hour}:{offset_minutes}"
        for day, time, hour, offset_minutes in re.findall(stamp, entry["question"])
    ]
    texts = stamps or [metadata["start_time"], metadata["end_time"]]
    start, end = (datetime.fromisoformat(text) for text in texts)
    if form.startswith("D") and end < start:
        return unanswerable("it ends before it starts")
    duration = end - start
    parts = {
        "D": f"{duration.days}",
        "HH": f"{duration.seconds // 3600:02}",
        "MM": f"{duration.seconds // 60 % 60:02}",
        "SS": f"{duration.seconds % 60:02}",
        "mmm": f"{duration.microseconds // 1000:03}",
    }
    right = re.sub("|".join(parts), lambda placeholder: parts[placeholder[0]], form)
    if right != entry["answer"]:
        return false_label(f"right: {right}")
    if form == "D days" and re.search("(started|began|departed) at", entry["question"]):
        return ambiguous("the first and the last day may both count")
    if form.endswith("HH:MM") and duration.seconds % 60 >= 30:
        return ambiguous("the minutes may be cut or rounded")
    if metadata["format"] == "%m/%d/%Y" and max(start.day, end.day) < 13:
        return (
            _two_orders() if _day_first(end) - _day_first(start) != duration else None
        )
    return None
