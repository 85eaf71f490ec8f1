"""What identifies an item where the text of its question doesn't.

Two questions can ask the same with their numbers in another order, in other words, or with other
names for the vertices of a graph. Training must not see such a copy of an evaluation item. A rule
of IDENTITIES returns a text that is equal for copies. Where questions disguise their answer, equal
answers are copies. All other items are identified by their questions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from ..records import Problem
from ..tasks.facts import DISGUISES_ITS_ANSWER

Identity = Callable[[str], str | None]
"""Returns what identifies the item of a question; None where that is the question."""


def in_any_order(pattern: str) -> Identity:
    """Return a rule that sorts the list, separated by commas, that the pattern's group finds.

    Example:
        >>> in_any_order("numbers: (.*)")("Add these numbers: 3, 1, 2")
        'Add these numbers: 1, 2, 3'
    """
    compiled = re.compile(pattern)

    def identity(question: str) -> str | None:
        match = compiled.search(question)
        if match is None:
            return None
        ordered = ", ".join(sorted(match[1].split(", ")))
        return f"{question[: match.start(1)]}{ordered}{question[match.end(1) :]}"

    return identity


def numbers(pattern: str = r"\d+", *, ordered: bool) -> Identity:
    """Return a rule that keeps the numbers of a question alone, sorted unless their order counts.

    Example:
        >>> numbers(ordered=False)("Find the gcd of 30 and 12.")
        '12 30'
    """
    compiled = re.compile(pattern)

    def identity(question: str) -> str:
        numbers_of_question = compiled.findall(question)
        if not ordered:
            numbers_of_question.sort()
        return " ".join(numbers_of_question)

    return identity


def numbers_of_first_line(question: str) -> str:
    """Return the sorted numbers of a question's first line, where its instructions follow."""
    return numbers(ordered=False)(question.strip().partition("\n")[0]) or ""


def sum_of_terms(question: str) -> str | None:
    """Return the signed terms of a sum, sorted.

    Example:
        >>> sum_of_terms("State the final answer to the following arithmetic problem: 4 - 3 + 2 =")
        '+ 2 + 4 - 3'
    """
    match = re.search(r": (.*) =", question)
    if match is None:
        return None
    return " ".join(sorted(re.findall(r"[+-] \S+", f"+ {match[1]}")))


def equation(question: str) -> str | None:
    """Return an equation whose variable is called x.

    Example:
        >>> equation("Determine the value of d that satisfies: 10*d + 10 = 70")
        '10*x + 10 = 70'
    """
    match = re.search(r":\s+(.+ = .+)$", question, re.MULTILINE)
    return match and re.sub("[a-zA-Z]", "x", match[1])


def jug_sizes(question: str) -> str:
    """Return the sorted capacities and the target of a puzzle with jugs."""
    sizes = sorted(re.findall(r"\b[A-Z]:(\d+)", question))
    target = re.findall(r"target is: (\d+)", question)
    return " ".join([*sizes, "for", *target])


def with_renamed(names: str) -> Identity:
    """Return a rule that numbers what a pattern finds, in the order of appearance.

    Example:
        >>> with_renamed("[A-Z]")("AB + BA = C")
        '01 + 10 = 2'
    """
    name = re.compile(names)

    def identity(question: str) -> str:
        numbers_of: dict[str, str] = {}

        def number(match: re.Match[str]) -> str:
            return numbers_of.setdefault(match[0], str(len(numbers_of)))

        return name.sub(number, question)

    return identity


def letters_of_sum(question: str) -> str | None:
    """Return a sum of words whose letters are numbered in the order of appearance."""
    match = re.search(r"cryptarithm:(.*?)Each letter", question, re.DOTALL)
    return match and with_renamed("[A-Z]")(match[1])


LEAST_EDGES = 8
"""Edges from which on a graph without names identifies an item; there are few smaller ones."""

Edge = tuple[int, int]


def nameless_graph(edges: Iterable[Edge], vertices: Iterable[int]) -> str | None:
    """Return a text that is equal for graphs that differ in the names of vertices alone.

    By color refinement (Weisfeiler and Leman 1968): each round, a vertex gets a hash of its own
    color and those of its successors and predecessors. Some different regular graphs share a text.
    None for small graphs.
    """
    colors = dict.fromkeys(vertices, "")
    arcs = list(edges)
    if len(arcs) < LEAST_EDGES:
        return None
    distinct = 0
    while len(set(colors.values())) > distinct:  # another round would split no color
        distinct = len(set(colors.values()))
        after: dict[int, list[str]] = {vertex: [] for vertex in colors}
        before: dict[int, list[str]] = {vertex: [] for vertex in colors}
        for start, end in arcs:
            after[start].append(colors[end])
            before[end].append(colors[start])
        colors = {
            vertex: _short_hash(
                repr((colors[vertex], sorted(after[vertex]), sorted(before[vertex])))
            )
            for vertex in colors
        }
    return " ".join(sorted(colors.values()))


def _short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def colored_graph(question: str) -> str | None:
    """Return the graph to color without names, and how many colors there are."""
    matches = [
        re.search(rf"{name}: (\[.*\])", question)
        for name in ("Vertices", "Edges", "Possible colors")
    ]
    vertices, edges, colors = (
        json.loads(match[1].replace("(", "[").replace(")", "]")) if match else []
        for match in matches
    )
    # An edge has no direction: it goes both ways.
    graph = nameless_graph(
        [arc for a, b in edges for arc in ((a, b), (b, a))], vertices
    )
    return graph and f"{len(colors)} colors: {graph}"


def course_graph(question: str) -> str | None:
    """Return the graph of prerequisites without names."""
    pairs = re.findall(r"\((\d+), (\d+)\)", question)
    number = re.search(r"a total of (\d+) courses", question)
    count = int(number[1]) if number else 0
    return nameless_graph(
        ((int(start), int(end)) for start, end in pairs), range(count)
    )


def disks_and_pegs(question: str) -> str:
    """Return the sizes of a tower of Hanoi, which start and target pegs don't change."""
    return " ".join(re.findall(r"(\d+) (?:disks|pegs)", question))


def statements_with_renamed_terms(question: str) -> str:
    """Return the premises and the conclusion of a syllogism, with numbers for their terms."""
    term = r"\b(?!All|No|Some|are|not|Does|it|logically|follow|that|Yes|or)[a-z]{3,}"
    statements = re.findall(r"^(?:\d\.)?.*\bare\b.*$", question, re.MULTILINE)
    return with_renamed(term)("\n".join(statements)) or ""


with_renamed_people = with_renamed(r"\b(?!They|What|How|Who|Answer|Provide)[A-Z][a-z]+")

IDENTITIES: Mapping[str, Identity] = MappingProxyType(
    {
        "aiw": with_renamed_people,
        "chain_sum": sum_of_terms,
        "countdown": numbers_of_first_line,
        "course_schedule": course_graph,
        "cryptarithm": letters_of_sum,
        "decimal_chain_sum": sum_of_terms,
        "family_relationships": with_renamed_people,
        "fraction_simplification": numbers(ordered=True),
        "gcd": numbers(ordered=False),
        "graph_color": colored_graph,
        "group_anagrams": in_any_order(r"into anagrams:\s+\[(.*)\]"),
        "jugs": jug_sizes,
        "lcm": numbers(ordered=False),
        "leg_counting": in_any_order(r"if you have (.*)\?"),
        "number_filtering": in_any_order(r"in this list: \[(.*?)\]"),
        "number_sorting": in_any_order(r"order: (.*)"),
        "palindrome_generation": in_any_order(r"following letters: (.*)"),
        "polynomial_equations": equation,
        "products": numbers(ordered=False),
        "puzzle24": numbers_of_first_line,
        "simple_equations": equation,
        "simple_geometry": numbers(r"\d+\.\d+", ordered=False),
        "syllogism": statements_with_renamed_terms,
        "tower_of_hanoi": disks_and_pegs,
        "word_sorting": in_any_order(r"comma-separated list: (.*)"),
    }
)
"""Rules by task; research/distinct_items.csv has what they leave of each level."""


def question_hash(question: str) -> bytes:
    """Return a hash of a question or answer, to compare them by."""
    return hashlib.blake2b(question.encode(), digest_size=16).digest()


def identity_of(task: str, question: str, oracle: str | None) -> str:
    """Return what identifies an item: a text that is equal for its known copies."""
    if oracle is not None and task in DISGUISES_ITS_ANSWER:
        return oracle
    rule = IDENTITIES.get(task)
    return (rule(question) if rule else None) or question


def problem_identity(problem: Problem) -> str:
    """Return what identifies a problem."""
    return identity_of(problem.recipe.task, problem.question, problem.oracle)
