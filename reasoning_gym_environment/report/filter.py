"""Conditions on rollouts: `--where` of the commands, and the same language as the page's filter."""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import ConfigurationError, did_you_mean
from ..records import Status
from ..storage.rows import StoredGroup, StoredRollout
from ..tasks.facts import known_categories
from .identity import EVALUATION, TRAINING, category_of, split_of

REWARD_DIGITS = 4
"""Digits of a reward in a condition, as in the page's index."""

FIELDS: Mapping[str, Callable[[StoredGroup, StoredRollout], str | float | None]] = {
    "kind": lambda group, _: split_of(group),
    "run": lambda group, _: group.run,
    "task": lambda group, _: group.task,
    "category": lambda group, _: category_of(group),
    "problems": lambda group, _: "again" if group.asked_again else "fresh",
    "status": lambda _, rollout: rollout.status.value,
    "level": lambda group, _: group.recipe.level,
    "difficulty": lambda group, _: group.difficulty,
    "step": lambda group, _: group.step,
    "group": lambda group, _: group.number,
    "reward": lambda _, rollout: round(rollout.score, REWARD_DIGITS),
    "tokens": lambda _, rollout: rollout.length,
}
"""What a condition can be about: names, then numbers. The report's page has the same fields."""

COMPARISONS: Mapping[str, Callable[[Any, float], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "": operator.eq,
}

ValueTest = Callable[[Any], bool]


class _Conditions(NamedTuple):
    """What a rollout must meet.

    Attributes:
        tests: alternatives by field.
        text: in lower case, searched in question and completion.
    """

    tests: Mapping[str, list[ValueTest]]
    text: str


def filter_rollouts(
    groups: Sequence[StoredGroup], where: str
) -> Iterator[tuple[StoredGroup, list[int]]]:
    """Yield each group with the places of its rollouts that meet all conditions, unless none does.

    Several values of a field, separated by commas or in several conditions, are alternatives.

    Raises:
        ConfigurationError: a field or a value is unknown.
    """
    conditions = _parse(where, groups)
    text = conditions.text
    for group in groups:
        is_asked = is_in_question(text, group)
        places = []
        for place, rollout in enumerate(group.rollouts):
            has_text = is_asked or text in rollout.text.lower()
            if has_text and _meets_all(conditions.tests, group, rollout):
                places.append(place)
        if places:
            yield group, places


def is_in_question(text: str, group: StoredGroup) -> bool:
    """Return whether the question has a text, given in lower case."""
    for message in group.prompt:
        # The system prompt is the same in all groups.
        if message["role"] != "system" and text in message["content"].lower():
            return True
    return False


def _meets_all(
    tests: Mapping[str, list[ValueTest]], group: StoredGroup, rollout: StoredRollout
) -> bool:
    for field, alternatives in tests.items():
        value = FIELDS[field](group, rollout)
        if not any(test(value) for test in alternatives):
            return False
    return True


def _parse(where: str, groups: Sequence[StoredGroup]) -> _Conditions:
    tests: defaultdict[str, list[ValueTest]] = defaultdict(list)
    words = []
    # A term ends at a space outside of quotes; a quote that nothing closes is a term of its own.
    for term in re.findall(r'(?:"[^"]*"|[^\s"])+|"', where):
        name, colon, values_text = term.partition(":")
        field = name.lower() if name.lower() in FIELDS else name
        if not colon or not re.fullmatch("[a-z]+", field):
            words.append(term.strip('"'))
            continue
        if field not in FIELDS:
            hint = did_you_mean(
                field, FIELDS, otherwise=f"fields are {', '.join(FIELDS)}"
            )
            quoted = f"or quote {term!r} to search for it"
            raise ConfigurationError(
                f"--where: unknown field {field!r}; {hint}, {quoted}"
            )
        # Nothing after the colon is an empty value, which fails with a message of its field.
        values = re.findall(r'"[^"]*"|[^,"]+', values_text) or [""]
        for value in values:
            tests[field].append(_value_test(field, value.strip('"'), groups))
    return _Conditions(tests, " ".join(words).lower())


def _value_test(field: str, value: str, groups: Sequence[StoredGroup]) -> ValueTest:
    """Return the test of a field's value that a condition stands for."""
    fixed_names: Mapping[str, Iterable[str]] = {
        "task": known_categories(),
        "category": known_categories().values(),
        "problems": ("fresh", "again"),
        "status": [status.value for status in Status],
        "kind": (TRAINING, EVALUATION),
        "run": (),
    }
    if field in fixed_names:
        return _name_test(field, value, fixed_names[field], groups)
    return _number_test(field, value)


def _name_test(
    field: str, name: str, fixed: Iterable[str], groups: Sequence[StoredGroup]
) -> ValueTest:
    in_files = set()
    for group in groups:
        for rollout in group.rollouts:
            in_files.add(str(FIELDS[field](group, rollout)))
    # A name that the package knows is valid, even if no file has such a rollout.
    names = {*fixed, *in_files}
    if field == "status":
        name = name.replace(" ", "_")  # as the page shows it
    if name not in names:
        files_note = f"the files have {', '.join(sorted(in_files)) or 'none'}"
        hint = did_you_mean(name, sorted(names), otherwise=files_note)
        raise ConfigurationError(f"--where: unknown {field} {name!r}; {hint}")
    return lambda value: bool(value == name)


def _number_test(field: str, condition: str) -> ValueTest:
    if condition == "none":
        return lambda value: value is None
    number = r"(-?\d+(?:\.\d+)?)"
    limits = re.fullmatch(rf"{number}\.\.{number}", condition)
    if limits:
        low, high = map(float, limits.groups())
        return lambda value: value is not None and low <= value <= high
    comparison = re.fullmatch(rf"(<=|>=|<|>|){number}", condition)
    if not comparison:
        raise ConfigurationError(
            f"--where: {field} must be a number, a comparison such as >=2, a range such as 2..5, "
            f"or none, got {condition!r}"
        )
    compare = COMPARISONS[comparison[1]]
    bound = float(comparison[2])
    return lambda value: value is not None and bool(compare(value, bound))
