"""Solvers of tasks: logic."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations, product
from operator import and_, or_, xor
from typing import Any, NamedTuple

from .solution import Property, Solution, Solver, UnreadableQuestionError, exactly

_STATEMENT = re.compile(r"(All|No|Some) (\w+) are (not )?(\w+)")


def _holds(statement: Sequence[str], people: Iterable[frozenset[str]]) -> bool:
    quantifier, subject, negated, predicate = statement
    fits = [
        (predicate in kinds) != bool(negated) for kinds in people if subject in kinds
    ]
    return {"All": all(fits), "No": not any(fits), "Some": any(fits)}[quantifier]


def syllogism(question: str) -> Solution:
    """Solve by every choice of the Venn regions that are inhabited."""
    statements = _STATEMENT.findall(question)
    if len(statements) < 2 or "Does it logically follow that" not in question:
        raise UnreadableQuestionError("no premise and conclusion")
    *premises, conclusion = statements
    nouns = sorted({noun for each in statements for noun in (each[1], each[3])})
    regions = [
        frozenset(
            noun for noun, inside in zip(nouns, membership, strict=True) if inside
        )
        for membership in product((False, True), repeat=len(nouns))
    ]
    follows = {"modern": True, "traditional": True}
    for inhabited in product((False, True), repeat=len(regions)):
        people = [
            region
            for region, someone in zip(regions, inhabited, strict=True)
            if someone
        ]
        if all(_holds(each, people) for each in premises) and not _holds(
            conclusion, people
        ):
            follows["modern"] = False
            if set().union(*people) >= set(nouns):
                follows["traditional"] = False
    answers = {"Yes" if each else "No" for each in follows.values()}
    return exactly(
        *sorted(answers),
        wrong=sorted({"Yes", "No"} - answers),
        ambiguous="follows only if no kind is empty" if len(answers) > 1 else "",
    )


_SIBLINGS = re.compile(
    r"(\w+) has (?:\d+ brothers and she also has )?(\d+) sisters(?: and she also has \d+ brothers)?"
    r"\. How many sisters does (\w+)'s brother have\?"
)
_FRIENDS = re.compile(
    r"(\w+) has .* (\d+) female friends\. They all are friends with each other and have no other "
    r"friends aside\. How many female friends does \w+, a male friend of \1, have\?"
)
_COLLEAGUES = re.compile(
    r"(\w+) has .* (\d+) female colleagues\. These are all colleagues that \1 has\. All these "
    r"mentioned persons around \1 are colleagues of each other\. (\w+) has .* (\d+) female "
    r"colleagues in total\. All these mentioned persons around \3 are colleagues of each other\. "
    r"The people in the circle around \3 do not have other colleagues aside - with the only "
    r"exception of Matilda\. She is colleague of \3 and she is also colleague of \1, being part of "
    r"\1's circle\. How many female colleagues does Matilda have\?"
)


def aiw(question: str) -> Solution:
    """Solve by counting the women around the person who is asked about."""
    text = question.strip()
    if found := _SIBLINGS.fullmatch(text):
        sister, sisters, asked = found.groups()
        if asked != sister:
            return exactly(wrong=[sisters, str(int(sisters) + 1)])
        women = int(sisters) + 1
    elif found := _FRIENDS.fullmatch(text):
        women = int(found[2]) + 1
    elif found := _COLLEAGUES.fullmatch(text):
        women = 1 + (int(found[2]) - 1) + (int(found[4]) - 1)
    else:
        raise UnreadableQuestionError("neither a family nor a circle")
    return exactly(str(women), wrong=[str(women - 1), str(women + 1)])


_Gate = Callable[[Sequence[bool]], bool]
_GATES: Mapping[str, _Gate] = {
    "AND": all,
    "NAND": lambda inputs: not all(inputs),
    "OR": any,
    "NOR": lambda inputs: not any(inputs),
    "XOR": lambda inputs: reduce(xor, inputs),
}


class _Circuit:
    """A drawing of gates, their names, and the values of its inputs."""

    def __init__(
        self,
        rows: Sequence[str],
        gates: Mapping[str, _Gate],
        values: Mapping[str, bool],
    ) -> None:
        self._rows = rows
        self._gates = gates
        self._values = values

    def follow(self, row: int, column: int) -> bool:
        """Return the value on the wire that has its right end here."""
        negated = False
        while True:
            sign = self._rows[row][column]
            if sign in "─>o":
                negated ^= sign == "o"
            elif sign in "└├┌":
                row = self._turn(row, column)
            elif self._rows[row][column - 1 : column + 1] in self._gates:
                return negated != self._gate(row, column - 1)
            else:
                return negated != self._values[self._rows[row][:column].strip(" :")]
            column -= 1

    def _turn(self, row: int, column: int) -> int:
        """Return the row in which a vertical wire comes from the left."""
        step = 1 if self._rows[row][column] == "┌" else -1
        row += step
        while self._rows[row][column] not in "┐┘":
            row += step
        return row

    def _gate(self, row: int, column: int) -> bool:
        """Return the output of the gate that covers this place."""
        symbol = self._rows[row][column : column + 2]
        while row and self._rows[row - 1][column : column + 2] == symbol:
            row -= 1
        inputs = []
        while row < len(self._rows) and self._rows[row][column : column + 2] == symbol:
            inputs.append(self.follow(row, column - 2))
            row += 1
        return self._gates[symbol](inputs)


def circuit_logic(question: str) -> Solution:
    """Solve by following the wires of the drawing from its output to its inputs.

    A gate of exclusive or with several inputs is true if an odd number of them is, or exactly one.
    """
    drawing = question.partition("circuit.")[2].partition("Legend")[0].split("\n")
    ends = [row for row, line in enumerate(drawing) if line.endswith("─ OUT")]
    if len(ends) != 1:
        raise UnreadableQuestionError("no circuit with one output")
    width = max(map(len, drawing))
    rows = [line.ljust(width) for line in drawing]
    legend = re.findall(r"^(\S\S): ([A-Z]+)$", question, re.MULTILINE)
    values = {
        name: bit == "1"
        for name, bit in re.findall(r"^ *(\w+) = ([01])$", question, re.M)
    }
    outputs = set()
    for gates in (_GATES, {**_GATES, "XOR": lambda inputs: sum(inputs) == 1}):
        try:
            circuit = _Circuit(
                rows, {symbol: gates[name] for symbol, name in legend}, values
            )
            outputs.add(
                circuit.follow(ends[0], len(drawing[ends[0]]) - len(" OUT") - 1)
            )
        except (KeyError, IndexError) as error:
            raise UnreadableQuestionError("a wire that leads nowhere") from error
    return exactly(
        *(str(int(output)) for output in sorted(outputs)),
        wrong=[str(int(output)) for output in {False, True} - outputs],
        ambiguous="XOR of several inputs: an odd number or one"
        if len(outputs) > 1
        else "",
    )


_CONNECTIVE = re.compile(r" (if and only if|and|or) ")


def _holds_for(roles: Mapping[str, str], statement: str) -> bool:
    """Return whether a statement is true; its innermost parentheses are replaced by their value."""
    while "(" in statement:
        statement, replaced = re.subn(
            r"\(([^()]*)\)",
            lambda inner: str(_simply_holds(roles, inner[1])),
            statement,
        )
        if not replaced:
            raise UnreadableQuestionError(f"unbalanced parentheses: {statement}")
    return _simply_holds(roles, statement)


def _simply_holds(roles: Mapping[str, str], statement: str) -> bool:
    if found := re.fullmatch(r"if (.*) then (.*)", statement):
        return not _simply_holds(roles, found[1]) or _simply_holds(roles, found[2])
    if found := re.fullmatch(r"it is not the case that (.*)", statement):
        return not _atom_holds(roles, found[1])
    connectives = set(_CONNECTIVE.findall(statement))
    first, *others = (
        _atom_holds(roles, atom)
        for atom in _CONNECTIVE.sub("\n", statement).split("\n")
    )
    if connectives == {"or"}:
        return any((first, *others))
    if connectives == {"if and only if"} and len(others) == 1:
        return first == others[0]
    if connectives <= {"and"}:
        return all((first, *others))
    raise UnreadableQuestionError(f"several connectives: {statement}")


def _atom_holds(roles: Mapping[str, str], atom: str) -> bool:
    found = re.fullmatch(r"(\w+) is an? (\w+)", atom)
    if atom not in ("True", "False") and not (found and found[1] in roles):
        raise UnreadableQuestionError(f"not a statement about a person: {atom}")
    return roles[found[1]] == found[2] if found else atom == "True"


def _claims(text: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each speaker with the statement."""
    for sentence in re.split(r"(?<=\.) ", text.replace('."', '".').replace(',"', '",')):
        quoted = re.search(r'"(.*)"', sentence)
        frame, statement = (
            (sentence.replace(quoted[0], ""), quoted[1])
            if quoted
            else (sentence.partition(" that ")[::2])
        )
        speakers = [name for name in names if re.search(rf"\b{name}\b", frame)]
        if len(speakers) != 1:
            raise UnreadableQuestionError(f"not one speaker: {sentence}")
        yield speakers[0], statement.rstrip(".")


def _told_roles(answer: str) -> list[tuple[str, str]]:
    return sorted(
        (name, role.lower()) for name, role in re.findall(r"(\w+) is an? (\w+)", answer)
    )


def knights_knaves(question: str) -> Solution:
    """Solve by trying every choice of roles."""
    found = re.search(
        r"You meet \d+ inhabitants: (.*?)\. (.*) So who is an? (\w+) and who is an? (\w+)\?",
        question.strip(),
    )
    if not found:
        raise UnreadableQuestionError("no inhabitants")
    names = re.split(r", and |, | and ", found[1])
    claims = list(_claims(found[2], names))
    solutions = []
    for chosen in product((found[3], found[4]), repeat=len(names)):
        roles = dict(zip(names, chosen, strict=True))
        if all(
            (roles[who] == found[3]) == _holds_for(roles, claim)
            for who, claim in claims
        ):
            solutions.append(roles)
    told = [sorted(roles.items()) for roles in solutions]
    other = {found[3]: found[4], found[4]: found[3]}
    nearly = [{**roles, names[-1]: other[roles[names[-1]]]} for roles in solutions[:1]]
    return Solution(
        accepts=lambda text: _told_roles(text) in told,
        right=[text for roles in solutions for text in _tell(roles)],
        wrong=[
            text
            for roles in nearly
            if roles not in solutions
            for text in _tell(roles)[:1]
        ],
        ambiguous="several choices of roles are possible" if len(solutions) > 1 else "",
    )


def _tell(roles: Mapping[str, str]) -> list[str]:
    """Return roles as English has them, and with `a` alone, as the question's format has them."""
    plain = [f"{name} is a {role}" for name, role in roles.items()]
    plain_text = ", ".join([*plain[:-1], f"and {plain[-1]}"])
    return [re.sub(r" a (?=[aeiou])", " an ", plain_text), plain_text]


_OR = "\N{LOGICAL OR}"
_CONNECTIVES = f"↔→{_OR}∧"
"""From the weakest to the strongest."""


class _Formula:
    """A parser of propositional formulas, to tables of truth in the bits of an integer."""

    def __init__(self, text: str, tables: Mapping[str, int], full: int) -> None:
        self._tokens = re.findall(r"\S", text)[::-1]
        self._tables = tables
        self._full = full
        self.table = self._binary(_CONNECTIVES)
        if self._tokens:
            raise UnreadableQuestionError(f"not a formula: {text}")

    def _binary(self, connectives: str) -> int:
        """Read the connectives from the weakest; each has the same meaning in a chain."""
        if not connectives:
            return self._unary()
        left = self._binary(connectives[1:])
        if self._tokens[-1:] != [connectives[0]]:
            return left
        self._tokens.pop()
        right = self._binary(connectives)
        return {
            "↔": self._full & ~(left ^ right),
            "→": self._full & ~left | right,
            _OR: left | right,
            "∧": left & right,
        }[connectives[0]]

    def _unary(self) -> int:
        token = self._tokens.pop() if self._tokens else ""
        if token == "¬":
            return self._full & ~self._unary()
        if token == "(":
            inner = self._binary(_CONNECTIVES)
            if self._tokens[-1:] == [")"]:
                self._tokens.pop()
                return inner
        if token in self._tables:
            return self._tables[token]
        raise UnreadableQuestionError(f"not a formula at {token!r}")


def propositional_logic(question: str) -> Solution:
    """Solve by tables of truth: what holds wherever all premises hold may be concluded.

    Where all that follows is in one premise, or is that some variable is true, nothing is to infer.
    """
    premises = re.findall(r"^\.?\d+\. (.*)$", question, re.MULTILINE)
    if not premises or "What can we conclude" not in question:
        raise UnreadableQuestionError("no premises")
    names = sorted(set(re.findall(r"[A-Z]", " ".join(premises))))
    rows = range(2 ** len(names))
    full = 2 ** len(rows) - 1
    tables = {
        name: sum(1 << row for row in rows if row >> place & 1)
        for place, name in enumerate(names)
    }
    premise_tables = [_Formula(premise, tables, full).table for premise in premises]
    given = reduce(and_, premise_tables)
    any_name = reduce(or_, tables.values())

    def is_new(text: str) -> bool:
        table = _Formula(text, tables, full).table
        return all(source & ~table for source in (*premise_tables, any_name))

    def follows(text: str) -> bool:
        # A conclusion may name what the premises don't; it must hold whatever that is.
        others = sorted(set(re.findall(r"[A-Z]", text)) - tables.keys())
        if len(others) > 3:
            return False
        try:
            return not any(
                given
                & ~_Formula(
                    text, tables | dict(zip(others, values, strict=True)), full
                ).table
                for values in product((0, full), repeat=len(others))
            )
        except UnreadableQuestionError:
            return False

    literals = [f"{sign}{name}" for name in names for sign in ("", "¬")]
    clauses = [
        f"({a} {_OR} {b})" for a, b in combinations(literals, 2) if a[-1] != b[-1]
    ]
    joined = " ∧ ".join(f"({premise})" for premise in premises)
    # Anything follows from a contradiction, and tautologies from anything.
    if not given or not is_new(joined):
        return exactly(wrong=literals)
    facts = [*filter(follows, literals)] or [*filter(follows, clauses)]
    return Solution(
        accepts=follows,
        right=[*[*filter(is_new, facts)][:3], joined],
        wrong=[text for text in (*literals, *clauses) if not follows(text)][:3],
    )


_COUNTING = re.compile(
    r"(At least|At most|Exactly) (\d+) of these (\d+) statements are (true|false)\."
    r"|Either Statement (\d+) or Statement (\d+) is true, but not both\."
    r"|The number of (true|false) statements is a (prime|composite) number\."
)


def _says_truly(statement: str, values: Sequence[bool]) -> bool:
    found = _COUNTING.fullmatch(statement)
    if not found or (found[3] and int(found[3]) != len(values)):
        raise UnreadableQuestionError(statement)
    if found[5]:
        return values[int(found[5]) - 1] != values[int(found[6]) - 1]
    count = values.count((found[4] or found[7]) == "true")
    if found[8]:
        divisors = sum(count % divisor == 0 for divisor in range(1, count + 1))
        return divisors == 2 if found[8] == "prime" else divisors > 2
    bound = int(found[2])
    return {
        "At least": count >= bound,
        "At most": count <= bound,
        "Exactly": count == bound,
    }[found[1]]


def self_reference(question: str) -> Solution:
    """Solve by trying every choice of the true statements."""
    statements = re.findall(r"- Statement \d+: '(.*)'", question)
    if not statements or "number of possible solutions" not in question:
        raise UnreadableQuestionError("no statements")
    count = sum(
        all(
            _says_truly(statement, values) == value
            for statement, value in zip(statements, values, strict=True)
        )
        for values in product((False, True), repeat=len(statements))
    )
    return exactly(str(count), wrong=[str(count + 1), str(max(0, count - 1))])


_PLACES = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
)

_Value = tuple[str, str]
"""What kind of thing it is, and which: ("Each person has a unique name", "alice")."""


class _Clue(NamedTuple):
    """The values that a clue names in the order of its text, and what it says of their houses."""

    values: Sequence[_Value]
    holds: Callable[..., Any]


def _relation(text: str, values: int) -> Callable[..., Any]:
    """Return what a clue says of the houses of the values that it names."""
    if values == 1 and (found := re.search(r" is in the (\w+) house\.", text)):
        house = _PLACES.index(found[1]) + 1
        return lambda place: place == house
    if values == 2 and not re.search(r"\b(right|between|not)\b", text):
        if " is directly left of " in text:
            return lambda first, second: first + 1 == second
        if text.endswith(" are next to each other."):
            return lambda first, second: (first - second) * (first - second) == 1
        if " is " in text:
            return lambda first, second: first == second
    raise UnreadableQuestionError(text)


def _read_clue(text: str, kinds: Mapping[str, Sequence[str]], names: str) -> _Clue:
    """Find the values that a clue names; a name may be a child's as well."""
    by_value = {value: kind for kind, values in kinds.items() for value in values}
    children = next((kind for kind in kinds if "child" in kind), names)
    longest_first = sorted(by_value, key=len, reverse=True)
    told = []
    for found in re.finditer(
        rf"\b({'|'.join(map(re.escape, longest_first))})", text.lower()
    ):
        value = found[1]
        kind = by_value[value]
        if kind in (children, names):
            before = text[: found.start()].lower()
            kind = (
                children
                if before.endswith(("child is named ", "mother of "))
                else names
            )
        told.append((kind, value))
    return _Clue(told, _relation(text, len(told)))


def _inhabitants(
    kinds: Mapping[str, Sequence[str]], clues: Sequence[_Clue], kind: str, house: int
) -> list[str]:
    """Return the values of a kind that the clues allow in a house."""
    import z3

    places = {
        (each, value): z3.Int(f"{each}: {value}")
        for each in kinds
        for value in kinds[each]
    }
    solver = z3.Solver()
    solver.add(
        [z3.And(place >= 1, place <= len(kinds[kind])) for place in places.values()]
    )
    solver.add(
        [z3.Distinct([places[each, value] for value in kinds[each]]) for each in kinds]
    )
    solver.add(
        [clue.holds(*[places[value] for value in clue.values]) for clue in clues]
    )
    return [
        value
        for value in kinds[kind]
        if solver.check(places[kind, value] == house) == z3.sat
    ]


def zebra_puzzles(question: str) -> Solution:
    """Solve by constraints: an integer for the house of each value."""
    listed = re.findall(r"^ - (.*): (.*)$", question, re.MULTILINE)
    clues = re.findall(r"^\d+\. (.*)$", question, re.MULTILINE)
    asked = re.search(
        r"What is Name of the person who lives in House (\d+)\?", question
    )
    names = next((kind for kind, _ in listed if "unique name" in kind), "")
    if not names or not clues or not asked:
        raise UnreadableQuestionError("no puzzle about names")
    kinds = {kind: values.split(", ") for kind, values in listed}
    read = [_read_clue(text, kinds, names) for text in clues]
    possible = _inhabitants(kinds, read, names, int(asked[1]))
    return Solution(
        accepts=lambda text: text.strip().lower() in possible,
        right=[form for name in possible for form in (name, name.title())],
        wrong=[name for name in kinds[names] if name not in possible],
        ambiguous="several persons may live there" if len(possible) > 1 else "",
    )


SOLVERS: Mapping[str, Solver] = {
    "aiw": aiw,
    "circuit_logic": circuit_logic,
    "knights_knaves": knights_knaves,
    "propositional_logic": propositional_logic,
    "self_reference": self_reference,
    "syllogism": syllogism,
    "zebra_puzzles": zebra_puzzles,
}

PROPERTIES: Mapping[str, Property] = {}
