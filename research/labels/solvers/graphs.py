"""Solvers of tasks: graphs and induction."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import accumulate, product
from typing import Any, TypeVar

from .solution import Property, Solution, Solver, UnreadableQuestionError, exactly

_Node = TypeVar("_Node", bound=Hashable)


def _distances(
    start: _Node,
    neighbors: Callable[[_Node], Iterable[_Node]],
    *,
    limit: int = 1_000_000,
) -> dict[_Node, int]:
    """Return the number of steps to every node that can be reached, up to a number of nodes."""
    found = {start: 0}
    waiting = deque([start])
    while waiting and len(found) < limit:
        node = waiting.popleft()
        for other in neighbors(node):
            if other not in found:
                found[other] = found[node] + 1
                waiting.append(other)
    return found


def course_schedule(question: str) -> Solution:
    """Solve by taking every course that has its prerequisites, until no more can be taken."""
    total = re.search(r"total of (\d+) courses", question)
    pairs = re.findall(r"\((\d+), (\d+)\)", question)
    if not total:
        raise UnreadableQuestionError("no courses")
    left = set(range(int(total[1])))
    needs = [(int(course), int(before)) for course, before in pairs]
    while ready := left - {course for course, before in needs if before in left}:
        left -= ready
    return exactly(str(not left), wrong=[str(bool(left))])


_MARRIAGE = re.compile(
    r"(\w+) is married to (\w+)\.(?: They have (?:a child|children) called ([^.]*)\.)?"
)
_ASKED = re.compile(
    r"(?:What relation is|How is|What is) (\w+) (?:related )?to (\w+)\?"
)
_MEN = frozenset(
    re.findall(
        r"\w+",
        """
        Aiden Alexander Andrew Atlas Axel Benjamin Charles Christopher Daniel David Edward
        Ethan Finn George Harry Henry Jack Jacob James Jayden John Joseph Kai Liam Logan
        Lucas Mason Matthew Michael Noah Oliver Owen Peter Richard Robert Ryder Samuel
        Sebastian Theodore Thomas William Zion
        """,
    )
)
_WOMEN = frozenset(
    re.findall(
        r"\w+",
        """
        Abigail Alice Amelia Anna Aria Aurora Ava Barbara Charlotte Chloe Eleanor
        Elizabeth Emily Emma Grace Hannah Isabella Jennifer Jessica Karen Lily Linda Lisa
        Lucy Luna Margaret Mary Mia Nova Olivia Patricia Sarah Sophia Sophie Susan
        Victoria Willow Zoe
        """,
    )
)
_WORDS: Mapping[str, tuple[str, str]] = {
    "spouse": ("husband", "wife"),
    "parent": ("father", "mother"),
    "child": ("son", "daughter"),
    "sibling": ("brother", "sister"),
    "grandparent": ("grandfather", "grandmother"),
    "grandchild": ("grandson", "granddaughter"),
    "parent-in-law": ("father-in-law", "mother-in-law"),
    "child-in-law": ("son-in-law", "daughter-in-law"),
    "sibling of a parent": ("uncle", "aunt"),
    "child of a sibling": ("nephew", "niece"),
    "sibling-in-law": ("brother-in-law", "sister-in-law"),
}


def _relations(
    person: str, other: str, spouse: Mapping[str, str], parents: Mapping[str, set[str]]
) -> set[str]:
    """Return what a person is to another."""

    def parents_of(people: Iterable[str]) -> set[str]:
        return set().union(*(parents.get(each, set()) for each in people))

    def siblings_of(one: str) -> set[str]:
        return {each for each in parents if parents[each] & parents_of([one])} - {one}

    mine, theirs = parents_of([person]), parents_of([other])
    couple = {person, spouse.get(person, "")}
    kinds = {
        "spouse": spouse.get(other) == person,
        "parent": person in theirs,
        "child": other in mine,
        "sibling": bool(mine & theirs),
        "grandparent": person in parents_of(theirs),
        "grandchild": other in parents_of(mine),
        "parent-in-law": person in parents_of([spouse.get(other, "")]),
        "child-in-law": other in parents_of([spouse.get(person, "")]),
        "sibling of a parent": any(couple & siblings_of(parent) for parent in theirs),
        "child of a sibling": any(
            siblings_of(parent) & {other, spouse.get(other, "")} for parent in mine
        ),
        "sibling-in-law": spouse.get(person, "") in siblings_of(other)
        or person in siblings_of(spouse.get(other, "")),
    }
    return {kind for kind, holds in kinds.items() if holds}


def family_relationships(question: str) -> Solution:
    """Solve by the tree of parents; whether a person is a man or a woman is in the name."""
    asked = _ASKED.search(question)
    spouse: dict[str, str] = {}
    parents: dict[str, set[str]] = {}
    for one, two, children in _MARRIAGE.findall(question):
        spouse |= {one: two, two: one}
        parents |= {child: {one, two} for child in re.findall(r"[A-Z]\w+", children)}
    kinds = _relations(asked[1], asked[2], spouse, parents) if asked else set()
    if not asked or len(kinds) != 1:
        raise UnreadableQuestionError("no family, or no relation that has a word")
    partner = spouse.get(asked[1])
    man, woman = _WORDS[kinds.pop()]
    words = [man, woman]
    if asked[1] in _MEN or partner in _WOMEN:
        words = [man]
    elif asked[1] in _WOMEN or partner in _MEN:
        words = [woman]
    every_word = {word for pair in _WORDS.values() for word in pair}
    return Solution(
        accepts=lambda text: text.strip().lower() in words,
        right=words,
        wrong=sorted(every_word - set(words)),
        ambiguous="the name is a man's and a woman's" if len(words) > 1 else "",
    )


def _grid(question: str, cells: str) -> dict[tuple[int, int], str]:
    """Return the cells of the only grid of a question, by row and column."""
    rows = re.findall(rf"^[{cells}](?: [{cells}])*$", question, re.MULTILINE)
    if not rows:
        raise UnreadableQuestionError("no grid")
    return {
        (y, x): cell for y, row in enumerate(rows) for x, cell in enumerate(row.split())
    }


_STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


def largest_island(question: str) -> Solution:
    """Solve by flooding each island."""
    land = {place for place, cell in _grid(question, "01").items() if cell == "1"}
    largest, left = 0, set(land)
    while left:
        island = _distances(
            next(iter(left)),
            lambda at: {(at[0] + y, at[1] + x) for y, x in _STEPS.values()} & land,
        )
        largest = max(largest, len(island))
        left -= island.keys()
    return exactly(str(largest), wrong=[str(largest + 1), str(len(land) + 2)])


def _length(words: Sequence[str], grid: Mapping[tuple[int, int], str]) -> int | None:
    """Return the number of steps of a way from `*` to `#`, or None if it does not lead there."""
    y, x = next(place for place, cell in grid.items() if cell == "*")
    for word in words:
        if word not in _STEPS:
            return None
        y, x = y + _STEPS[word][0], x + _STEPS[word][1]
        if grid.get((y, x), "X") == "X":
            return None
    return len(words) if grid[y, x] == "#" else None


def shortest_path(question: str) -> Solution:
    """Solve by breadth-first search from the destination."""
    grid = _grid(question.partition("following grid:")[2], "OX*#")
    (start,) = (place for place, cell in grid.items() if cell == "*")
    (goal,) = (place for place, cell in grid.items() if cell == "#")
    steps = _distances(
        goal,
        lambda at: [
            near
            for near in ((at[0] + y, at[1] + x) for y, x in _STEPS.values())
            if grid.get(near, "X") != "X"
        ],
    )
    if start not in steps:
        return exactly("infeasible", wrong=["right", "up up"])
    path, at = list[str](), start
    while at != goal:
        word = next(
            word
            for word, (y, x) in _STEPS.items()
            if steps.get((at[0] + y, at[1] + x), len(grid)) < steps[at]
        )
        path.append(word)
        at = (at[0] + _STEPS[word][0], at[1] + _STEPS[word][1])
    opposite = {"up": "down", "down": "up", "left": "right", "right": "left"}
    return Solution(
        accepts=lambda text: _length(text.split(), grid) == len(path),
        right=[" ".join(path)],
        wrong=[
            "infeasible",
            " ".join(path[:-1]),
            " ".join([*path, opposite[path[-1]], path[-1]]),
        ],
    )


def path_star(question: str) -> Solution:
    """Solve by following the edges from the start; a star has one way to each node."""
    found = re.search(r"Solve the following task:\s*\|?([^/]*)/(\S+) (\S+) =", question)
    if not found:
        raise UnreadableQuestionError("no graph")
    after: dict[str, list[str]] = {}
    for edge in found[1].split("|"):
        one, two = edge.split()
        after.setdefault(one, []).append(two)
    ways = [[found[2]]]
    paths = []
    while ways:
        way = ways.pop()
        if way[-1] == found[3]:
            paths.append(" ".join(way))
        ways += [[*way, node] for node in after.get(way[-1], []) if node not in way]
    return Solution(
        accepts=lambda text: " ".join(text.split()) in paths,
        right=paths,
        wrong=[f"{found[2]} {found[3]}", *(path.partition(" ")[2] for path in paths)],
        ambiguous="several paths" if len(paths) > 1 else "",
    )


_BUTTON = re.compile(
    r"^(\w): (Add|Subtract|Multiply) (\d+) \(when (red|green|any)\)$", re.M
)
_State = tuple[int, str]


def _press(state: _State, button: Sequence[str], *, idle: bool) -> _State | None:
    """Press a button; in the wrong light it toggles the light alone, or (not `idle`) can't be."""
    (number, light), (_, operation, operand, when) = state, button
    after = "green" if light == "red" else "red"
    if when not in ("any", light):
        return (number, after) if idle else None
    by = int(operand)
    return {"Add": number + by, "Subtract": number - by, "Multiply": number * by}[
        operation
    ], after


def _leads_to(
    pressed: Sequence[str],
    start: _State,
    buttons: Mapping[str, Sequence[str]],
    *,
    idle: bool,
) -> int | None:
    """Return the number after pressing buttons, or None if that is not possible."""
    state: _State | None = start
    for name in pressed:
        state = (
            _press(state, buttons[name], idle=idle)
            if state and name in buttons
            else None
        )
    return state[0] if state else None


def _shortest_presses(
    start: _State, target: int, buttons: Mapping[str, Sequence[str]], *, idle: bool
) -> list[str]:
    """Return a shortest sequence for each light that it may end with."""
    layer, seen = {start: ""}, {start}
    while layer and not any(number == target for number, _ in layer):
        following = {
            state: pressed + name
            for before, pressed in layer.items()
            for name, button in buttons.items()
            if (state := _press(before, button, idle=idle))
            and abs(state[0]) < 50 * target + 500
        }
        layer = {
            state: pressed for state, pressed in following.items() if state not in seen
        }
        seen |= layer.keys()
    return [pressed for (number, _), pressed in layer.items() if number == target]


def _idles_on_the_way(
    start: _State, target: int, buttons: Mapping[str, Sequence[str]], length: int
) -> bool:
    """Return whether at most `length` presses with one in the wrong light lead to the target."""
    right_lights, with_idle = {start}, set[_State]()
    for _ in range(length):
        pressed = {
            (
                before,
                _press(before, button, idle=False),
                _press(before, button, idle=True),
            )
            for before in right_lights
            for button in buttons.values()
        }
        with_idle = {
            after
            for before in with_idle
            for button in buttons.values()
            if (after := _press(before, button, idle=True))
        } | {idle for _, plain, idle in pressed if not plain and idle}
        right_lights = {plain for _, plain, _ in pressed if plain}
        if any(number == target for number, _ in with_idle):
            return True
    return False


def quantum_lock(question: str) -> Solution:
    """Solve by breadth-first search, for both readings of a press in the wrong light."""
    found = re.search(r"Start: (-?\d+) \((red|green)\)\s*Target: (\d+)", question)
    buttons = {button[0]: button for button in _BUTTON.findall(question)}
    if not found or not buttons:
        raise UnreadableQuestionError("no lock")
    start, target = (int(found[1]), found[2]), int(found[3])
    shortest = {
        idle: _shortest_presses(start, target, buttons, idle=idle)
        for idle in (False, True)
    }

    def accepts(text: str) -> bool:
        pressed = re.findall(r"\w", text)
        return any(
            presses
            and len(pressed) == len(presses[0])
            and _leads_to(pressed, start, buttons, idle=idle) == target
            for idle, presses in shortest.items()
        )

    right = shortest[False] or shortest[True]
    length = len(right[0]) if right else 0
    return Solution(
        accepts=accepts,
        right=[" → ".join(presses) for presses in right],
        wrong=[
            " → ".join(presses[:-1]) for presses in right if not accepts(presses[:-1])
        ],
        ambiguous="as short if a button can be pressed in the wrong light"
        if _idles_on_the_way(start, target, buttons, length)
        else "",
    )


def acre(question: str) -> Solution:
    """Solve by every choice of blickets that explains the examples."""
    told = re.findall(r"^(.+) → (on|off)$", question, re.MULTILINE)
    asked = re.search(r"New test case:\s*(.+)", question)
    if not told or not asked:
        raise UnreadableQuestionError("no experiments")
    examples = [(set(objects.split(", ")), light == "on") for objects, light in told]
    tested = set(asked[1].strip().split(", "))
    things = sorted(tested.union(*(objects for objects, _ in examples)))
    lights = set()
    for chosen in product((False, True), repeat=len(things)):
        blickets = {
            thing
            for thing, is_blicket in zip(things, chosen, strict=True)
            if is_blicket
        }
        if all(bool(blickets & objects) == light for objects, light in examples):
            lights.add("on" if blickets & tested else "off")
    if not lights:
        return exactly(wrong=["on", "off", "undetermined"])
    light = lights.pop() if len(lights) == 1 else "undetermined"
    return exactly(light, wrong=sorted({"on", "off", "undetermined"} - {light}))


def _rule_violation(entry: Mapping[str, Any]) -> str:
    """Return what is wrong if the examples contradict each other or the answer's form."""
    pairs = re.findall(r"Input \d+: (\[.*\])\nOutput \d+: (\[.*\])", entry["question"])
    asked = re.search(r"\nInput: (\[.*\])", entry["question"])
    if not pairs or not asked:
        return "no examples"
    if len(dict(pairs)) != len(set(pairs)):
        return "one input has two outputs"
    if dict(pairs).get(asked[1], entry["answer"]) != entry["answer"]:
        return "an example shows another output for the input"
    if {output for _, output in pairs} <= {"[0]", "[1]"} and entry["answer"] not in (
        "[0]",
        "[1]",
    ):
        return "a count, or whether there is any"
    given = [(json.loads(one), json.loads(other)) for one, other in pairs]
    if _open_bounds(given, json.loads(asked[1])):
        return "the examples leave open which elements are summed"
    return (
        "" if re.fullmatch(r"\[(-?\d+(, -?\d+)*)?\]", entry["answer"]) else "not a list"
    )


def _open_bounds(
    pairs: Sequence[tuple[list[int], list[int]]], asked: list[int]
) -> bool:
    """Return whether examples that sum the smallest elements leave open whether one is summed."""
    low = -math.inf  # the largest element that is summed
    high = math.inf  # the smallest one that is not
    for given, shown in pairs:
        ordered = sorted(given)
        totals = [*accumulate(ordered, initial=0)]
        if len(shown) != 1 or shown[0] not in totals:
            return False
        count = totals.index(shown[0])
        low = max([low, *ordered[:count]])
        high = min([high, *ordered[count:]])
    between = [element for element in asked if low < element < high]
    return low < high < math.inf and low > -math.inf and bool(between)


SOLVERS: Mapping[str, Solver] = {
    "acre": acre,
    "course_schedule": course_schedule,
    "family_relationships": family_relationships,
    "largest_island": largest_island,
    "path_star": path_star,
    "quantum_lock": quantum_lock,
    "shortest_path": shortest_path,
}

PROPERTIES: Mapping[str, Property] = {
    "list_functions": Property(
        reason="any rule that fits the examples is defensible",
        checked="examples with one output for each input, and a list of integers as the answer",
        violation=_rule_violation,
    )
}
