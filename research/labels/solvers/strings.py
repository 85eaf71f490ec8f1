"""Solvers of tasks: strings."""

from __future__ import annotations

import json
import re
from ast import literal_eval
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import cache
from itertools import cycle, pairwise
from math import log
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any

from .solution import Property, Solution, Solver, UnreadableQuestionError

_DIGITS = digits + ascii_lowercase


def _read(pattern: str, question: str) -> tuple[str, ...]:
    """Return the groups of the last match of a pattern."""
    matches = list(re.finditer(pattern, question))
    if not matches:
        raise UnreadableQuestionError(f"nothing matches {pattern!r}")
    return matches[-1].groups()


def _literal(text: str) -> Any:
    """Return the list or number that a text writes down, None if it writes none."""
    try:
        return literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _solution(
    *,
    accepts: Callable[[str], bool],
    right: Sequence[str],
    wrong: Sequence[str],
    ambiguous: str = "",
) -> Solution:
    """Return a solution without the wrong answers that happen to be right."""
    near = [text for text in dict.fromkeys(wrong) if not accepts(text)]
    return Solution(accepts=accepts, right=right, wrong=near, ambiguous=ambiguous)


def _one_of(
    right: Sequence[str], wrong: Sequence[str], ambiguous: str = ""
) -> Solution:
    """Return a solution that compares texts without regard to white space."""
    known = {"".join(text.split()) for text in right}
    return _solution(
        accepts=lambda text: "".join(text.split()) in known,
        right=[text for text in right if text],
        wrong=wrong,
        ambiguous=ambiguous,
    )


def _yes_or_no(*, yes: bool) -> Solution:
    return _solution(
        accepts=lambda text: text.strip().lower() == str(yes).lower(),
        right=[str(yes)],
        wrong=[str(not yes)],
    )


_REWRITTEN = {
    ("A#", "#A"): [],
    ("A#", "#B"): ["#B", "A#"],
    ("B#", "#A"): ["#A", "B#"],
    ("B#", "#B"): [],
}


def ab(question: str) -> Solution:
    """Solve by rewriting neighbors; no two rules overlap, so the order does not matter."""
    program = _read(r"following program:\s+(.*?)\s+Return", question)[0].split()
    tokens = list(program)
    while True:
        pairs = pairwise(tokens)
        place = next((i for i, pair in enumerate(pairs) if pair in _REWRITTEN), None)
        if place is None:
            break
        tokens[place : place + 2] = _REWRITTEN[tokens[place], tokens[place + 1]]
    wrong = [program, tokens[::-1], tokens[1:], [*tokens, "A#"]]
    return _one_of([" ".join(tokens)], [" ".join(each) for each in wrong])


def base_conversion(question: str) -> Solution:
    """Solve by reading and writing the number digit by digit."""
    bases = {"binary": 2, "octal": 8, "decimal": 10, "hexadecimal": 16}
    source, number, target = _read(
        r"convert the (\S+) number ([0-9a-z]+) to (?:base-)?(\S+)", question
    )

    def base(name: str) -> int:
        return bases.get(name) or int(name.removeprefix("base-"))

    value = int(number, base(source))
    right = _in_base(value, base(target))
    wrong = [_in_base(value + 1, base(target)), number, str(value), right + "0"]
    return _solution(
        accepts=lambda text: text.strip().lower() == right, right=[right], wrong=wrong
    )


def _in_base(value: int, base: int) -> str:
    written = ""
    while value:
        value, digit = divmod(value, base)
        written = _DIGITS[digit] + written
    return written or "0"


def binary_alternation(question: str) -> Solution:
    """Solve by comparing with both alternating strings: a swap mends two characters."""
    (text,) = _read(r"alternating: ([01]+)", question)
    costs = []
    for first, second in ("01", "10"):
        goal = ((first + second) * len(text))[: len(text)]
        if Counter(goal) == Counter(text):
            costs.append(sum(a != b for a, b in zip(goal, text, strict=True)) // 2)
    cost = min(costs, default=-1)
    wrong = [str(each) for each in (cost + 1, cost - 1, 2 * cost, -1, -cost)]
    return _solution(
        accepts=lambda text: _literal(text) == cost, right=[str(cost)], wrong=wrong
    )


_COMMON = """
a i am an as at be by do go he if in is it me mr my no of on or so to up us we all and any are but
can exclaimed for had has her him his how its mrs not now one our out see she the too was who yes
you from good have here into just left like more only said such than that them then they this what
when will with well your about below could every first other their there these where which would
gutenberg smith wilkins
"""
_PAIRS = """
th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co me
de hi ri ro ic ne ea ra ce li ch ll be ma si om ur
"""
_PER_MILLE = (
    "82 15 28 43 127 22 20 61 70 1.5 8 40 24 67 75 19 1 60 63 91 28 10 24 1.5 20 1"
)
_WORDS, _RANKED_PAIRS = frozenset(_COMMON.split()), _PAIRS.split()
_FREQUENCIES = dict(zip(ascii_lowercase, map(float, _PER_MILLE.split()), strict=True))
"""Of letters in English texts."""

_SHIFTS = range(1, 26)


def caesar_cipher(question: str) -> Solution:
    """Solve by choosing the shift that makes the best English; short texts don't tell it."""
    (cipher,) = _read(r"Caesar cipher text: (.*)\. Provide only", question)
    texts = [_shifted(cipher, shift) for shift in _SHIFTS]
    readable = [text for text in texts if _WORDS.issuperset(text.lower().split())]
    letters = len(cipher.replace(" ", ""))
    if letters < 3 or (letters == 3 and len(readable) != 1):
        return _one_of(texts, [], "one to three letters don't tell the shift")
    ranked = sorted(texts, key=_englishness, reverse=True)
    best = readable[0] if len(readable) == 1 else ranked[0]
    return _solution(
        accepts=lambda text: text.strip().rstrip(".") == best,
        right=[best],
        wrong=[cipher, ranked[1], best[:-1], best.split(" ", 1)[-1]],
    )


def _shifted(text: str, shift: int) -> str:
    turned = ascii_uppercase[shift:] + ascii_uppercase[:shift]
    return text.translate(str.maketrans(ascii_uppercase, turned))


def _englishness(text: str) -> float:
    """Return a number that is larger for texts with frequent letters, pairs and words."""
    words = text.lower().split()
    letters = sum(log(_FREQUENCIES[letter] / 38) for word in words for letter in word)
    pairs = [first + second for word in words for first, second in pairwise(word)]
    weights = sum(
        1.8 - 0.03 * _RANKED_PAIRS.index(pair)
        for pair in pairs
        if pair in _RANKED_PAIRS
    )
    return 0.8 * letters + weights + 3 * sum(word in _WORDS for word in words)


def group_anagrams(question: str) -> Solution:
    """Solve by grouping words with the same letters."""
    words = json.loads(_read(r"into anagrams:\s*(\[.*\])", question)[0])
    by_letters: dict[str, list[str]] = {}
    for word in words:
        by_letters.setdefault("".join(sorted(word)), []).append(word)
    groups = list(by_letters.values())

    def normal(answer: Any) -> Any:
        return sorted(sorted(map(str, group)) for group in answer)

    def accepts(text: str) -> bool:
        answer = _literal(text)
        return _is_nested(answer) and bool(normal(answer) == normal(groups))

    mixed = [[*groups[0], groups[-1][0]], *groups[1:-1], groups[-1][1:]]
    wrong = [
        groups[:-1],
        [words],
        [[word] for word in words],
        mixed,
        [*groups, groups[0]],
    ]
    return _solution(
        accepts=accepts,
        right=[json.dumps(groups), json.dumps([group[::-1] for group in groups[::-1]])],
        wrong=[json.dumps(each) for each in wrong],
    )


def _is_nested(answer: Any) -> bool:
    """Return whether an answer is a list of lists."""
    return isinstance(answer, list) and all(isinstance(part, list) for part in answer)


def isomorphic_strings(question: str) -> Solution:
    """Solve by pairing characters: no character may stand in two pairs."""
    first, second = _read(r"isomorphic, or False otherwise:\s+(\S+) (\S+)", question)
    pairs = set(zip(first, second, strict=False))
    yes = len(first) == len(second) and len(pairs) == len(set(first)) == len(
        set(second)
    )
    return _yes_or_no(yes=yes)


def letter_counting(question: str) -> Solution:
    """Solve by counting, with and without regard to case."""
    letter, text = _read(r'letter "(.)" appear in the text: "(.*)"\?', question)
    exact, any_case = text.count(letter), text.lower().count(letter.lower())
    return _solution(
        accepts=lambda text: _literal(text) in (exact, any_case),
        right=[str(each) for each in sorted({any_case, exact}, reverse=True)],
        wrong=[str(any_case + 1), str(exact - 1), f"-{any_case}"],
        ambiguous=""
        if exact == any_case
        else f"{letter} is counted with or without capitals",
    )


def number_filtering(question: str) -> Solution:
    """Solve by comparing the numbers; those that stay are written as before."""
    verb, relation, bound, listed = _read(
        r"(Keep|Remove) all numbers (larger|smaller) than (\S+) in this list: (\[.*\])",
        question,
    )
    numbers = literal_eval(listed)

    def meets(number: str) -> bool:
        difference = Decimal(number) - Decimal(bound)
        return difference > 0 if relation == "larger" else difference < 0

    kept = [number for number in numbers if meets(number) == (verb == "Keep")]
    others = [number for number in numbers if number not in kept]
    wrong = [others, kept[:-1], kept[::-1], numbers, [*kept, *others[:1]]]
    return _solution(
        accepts=lambda text: bool(_literal(text) == kept),
        right=[str(kept)],
        wrong=[str(each) for each in wrong],
    )


def number_sorting(question: str) -> Solution:
    """Solve by sorting the numbers as they are written, and compare by value."""
    order, listed = _read(r"numbers in (ascending|descending) order: (.*)", question)
    numbers = listed.strip().split(", ")
    ordered = sorted(numbers, key=Decimal, reverse=order == "descending")
    values = [Decimal(number) for number in ordered]

    def accepts(text: str) -> bool:
        answer = _literal(text)
        try:
            return (
                isinstance(answer, list)
                and [Decimal(str(each)) for each in answer] == values
            )
        except InvalidOperation:
            return False

    changed = [str(values[0] + Decimal("0.1")), *ordered[1:]]
    swapped = [*ordered[:-2], *ordered[:-3:-1]]
    wrong = [ordered[::-1], sorted(numbers), ordered[:-1], changed, swapped, numbers]
    return _solution(
        accepts=accepts, right=[str(ordered)], wrong=[str(each) for each in wrong]
    )


def palindrome_generation(question: str) -> Solution:
    """Solve by putting half of each pair of letters on either side of the odd one."""
    letters = _read(r"following letters: (.*)", question)[0].strip().split(", ")
    counts = Counter(letters)
    half = "".join(letter * (count // 2) for letter, count in counts.items())
    odd = [letter for letter, count in counts.items() if count % 2]
    middle = "".join(odd)
    right = (
        [half + middle + half[::-1], half[::-1] + middle + half] if len(odd) < 2 else []
    )

    def accepts(text: str) -> bool:
        text = text.strip()
        return text == text[::-1] and Counter(text) == counts

    swapped = right[0][1:2] + right[0][:1] + right[0][2:] if right else ""
    wrong = ["".join(letters), "".join(sorted(letters)), half + half[::-1], swapped]
    return _solution(
        accepts=accepts, right=right, wrong=[*wrong, half + middle * 3 + half[::-1]]
    )


def palindrome_partitioning(question: str) -> Solution:
    """Solve by trying each palindrome at the start of what remains."""
    (text,) = _read(r"into palindromes: (\w+)", question)

    @cache
    def partitions(start: int) -> list[list[str]]:
        if start == len(text):
            return [[]]
        starts = [text[start:end] for end in range(start + 1, len(text) + 1)]
        palindromes = [part for part in starts if part == part[::-1]]
        return [
            [part, *rest]
            for part in palindromes
            for rest in partitions(start + len(part))
        ]

    right = partitions(0)

    def accepts(answer: str) -> bool:
        parsed = _literal(answer)
        return _is_nested(parsed) and set(map(tuple, parsed)) == set(map(tuple, right))

    wrong = [right[:-1], right[1:], [*right, [text, ""]]]
    return _solution(
        accepts=accepts,
        right=[json.dumps(right), json.dumps(right[::-1])],
        wrong=[json.dumps(each) for each in wrong],
    )


def ransom_note(question: str) -> Solution:
    """Solve by counting letters."""
    note, magazine = _read(r"Ransom note: (\w*)\s+Magazine: (\w*)", question)
    return _yes_or_no(yes=Counter(note) <= Counter(magazine))


def spell_backward(question: str) -> Solution:
    """Solve by reversing the word; spelling it says nothing about case."""
    (word,) = _read(r"nus\): (\S+)", question)
    right = word[::-1]
    wrong = [
        word,
        right[1:],
        right[:-1],
        right + right[-1],
        right[1:2] + right[:1] + right[2:],
    ]
    return _solution(
        accepts=lambda text: text.strip().rstrip(".").lower() == right.lower(),
        right=[right],
        wrong=wrong,
    )


_INSERTED = {"ABCD": "A", "BCDE": "B", "CDEA": "C", "DEAB": "D", "EABC": "E"}


def string_insertion(question: str) -> Solution:
    """Solve in one pass that continues after each inserted character."""
    for pattern, letter in _INSERTED.items():
        _read(
            f"substring {pattern} in the string, insert the character {letter}",
            question,
        )
    (text,) = _read(r"according to the pattern: ([A-E]+)", question)
    right = re.sub(
        "|".join(_INSERTED), lambda found: found[0] + _INSERTED[found[0]], text
    )
    by_rule = text
    for pattern, letter in _INSERTED.items():
        by_rule = by_rule.replace(pattern, pattern + letter)
    return _one_of([right], [text, by_rule, right + "A", right[1:]])


_MIDDLE = "If the string length is greater than 15, remove the middle character."

_RULES: Mapping[str, Callable[[str], str]] = {
    "If the string contains 'abc', replace the first occurrence with 'cab'.": (
        lambda s: s.replace("abc", "cab", 1)
    ),
    "If the string contains 'acb', replace the first occurrence with its reverse ('bca').": (
        lambda s: s.replace("acb", "bca", 1)
    ),
    "If the string contains 'bca', delete the first occurrence entirely.": (
        lambda s: s.replace("bca", "", 1)
    ),
    "If the string contains 'ca' (not at the start), remove the first occurrence found after "
    "the first character.": lambda s: s[:1] + s[1:].replace("ca", "", 1),
    "If the string contains an even number of 'b's (and at least one 'b'), append 'ab' at the "
    "end.": lambda s: (
        s if s.count("b") in range(1, len(s) + 1, 2) or "b" not in s else s + "ab"
    ),
    "If the string ends with 'aa', replace it with 'cc'.": lambda s: re.sub(
        "aa$", "cc", s
    ),
    "If the string ends with 'ba', replace it with 'ab'.": lambda s: re.sub(
        "ba$", "ab", s
    ),
    "If the string ends with 'ca', remove the last character.": lambda s: re.sub(
        "ca$", "c", s
    ),
    "If the string prefix is 'aa', remove the first character.": lambda s: re.sub(
        "^aa", "a", s
    ),
    "If the string prefix is 'ab', replace it with 'ca'.": lambda s: re.sub(
        "^ab", "ca", s
    ),
    "If the string prefix is 'bc', delete the first two characters and append 'aa' to the end.": (
        lambda s: re.sub("^bc(.*)", r"\1aa", s)
    ),
    "If the string prefix is 'ca', replace it with 'bb' and append 'c' to the end.": (
        lambda s: re.sub("^ca(.*)", r"bb\1c", s)
    ),
    "If the string prefix is 'cb', replace it with 'aa' and delete the last character.": (
        lambda s: f"aa{s[2:]}"[:-1] if s.startswith("cb") else s
    ),
    "If the string starts with 'ac', replace the first two characters with 'zz'.": (
        lambda s: re.sub("^ac", "zz", s)
    ),
    "If the string starts with 'bb', remove the second character.": lambda s: re.sub(
        "^bb", "b", s
    ),
    "If the string starts with 'cc', remove the first two characters.": (
        lambda s: s.removeprefix("cc")
    ),
    "If the string suffix is 'ac', replace it with 'cb'.": lambda s: re.sub(
        "ac$", "cb", s
    ),
    "If the string suffix is 'bb', delete the last two characters.": lambda s: (
        s.removesuffix("bb")
    ),
    "If the string suffix is 'cc', replace it with 'b' and prepend 'a' to the start.": (
        lambda s: re.sub("^(.*)cc$", r"a\1b", s)
    ),
}
"""Rules by their text; each changes a string to which it applies."""


def string_manipulation(question: str) -> Solution:
    """Solve by applying the rules, with either of the two middles of an even length."""
    (text,) = _read(r"list of rules:\s+(\S+)", question)
    rules = re.findall(r"^\d+\. (.*)$", question, re.MULTILINE)
    if unknown := [rule for rule in rules if rule not in _RULES and rule != _MIDDLE]:
        raise UnreadableQuestionError(f"unknown rule {unknown[0]!r}")
    paths = [_transformed(text, rules, shift) for shift in (0, 1)]
    finals = list(dict.fromkeys(path[-1] for path in paths if path))
    early = [path[-2] for path in paths if len(path) > 1]
    ambiguous = (
        "an even number of characters has two middles" if len(finals) > 1 else ""
    )
    return _one_of(
        finals, [text, *early, *(final + "a" for final in finals)], ambiguous
    )


_STEPS = 20_000


def _transformed(text: str, rules: Sequence[str], shift: int) -> list[str]:
    """Return each state up to the final one; empty if they never end."""
    states = {text: None}
    for _ in range(_STEPS):
        for rule in rules:
            if rule == _MIDDLE:
                middle = (len(text) - shift) // 2
                after = text[:middle] + text[middle + 1 :] if len(text) > 15 else text
            else:
                after = _RULES[rule](text)
            if after != text:
                break
        else:
            return list(states)
        if after in states:
            return list(states)
        text = after
        states[text] = None
    return []


_Counts = dict[str, int]
_Reaction = tuple[_Counts, _Counts]

_NUMBERS = {"one": 1, "two": 2}


def _reactions(question: str) -> list[_Reaction]:
    """Return what each rule takes and makes."""
    rules = re.findall(
        r"^\d\. (.*?) can be (?:\w+ into|combined to form) (.*)\.$", question, re.M
    )
    pattern = r"(?i)\b(one|two)(?: units? of (?:machine|part))? (\w\b|[\[({]\w[\])}])"
    sides = [[re.findall(pattern, side) for side in rule] for rule in rules]
    if not rules or not all(side for rule in sides for side in rule):
        raise UnreadableQuestionError("no rules")
    taken, made = (
        [{k: _NUMBERS[n.lower()] for n, k in r[i]} for r in sides] for i in (0, 1)
    )
    return list(zip(taken, made, strict=True))


def _apply(counts: _Counts, reaction: _Reaction) -> _Counts | None:
    """Return the counts after one application, None if the rule doesn't apply."""
    taken, made = reaction
    if any(counts[kind] < number for kind, number in taken.items()):
        return None
    return {
        kind: n - taken.get(kind, 0) + made.get(kind, 0) for kind, n in counts.items()
    }


def _limit(question: str) -> int:
    return int(_read(r"Apply the rules at most (\d+) times", question)[0])


def _first_applicable(
    counts: _Counts, reactions: Sequence[_Reaction], limit: int
) -> _Counts:
    """Return the counts at the end if each application restarts from the first rule."""
    for _ in range(limit):
        after = next(filter(None, (_apply(counts, each) for each in reactions)), None)
        if after is None:
            break
        counts = after
    return counts


def _in_turn(counts: _Counts, reactions: Sequence[_Reaction], limit: int) -> _Counts:
    """Return the counts at the end if the rules take turns, one application each."""
    applied = idle = 0
    for each in cycle(reactions):
        after = _apply(counts, each)
        idle = 0 if after else idle + 1
        applied += after is not None
        counts = after or counts
        if idle == len(reactions) or applied == limit:
            break
    return counts


def _written(counts: _Counts) -> str:
    return " ".join(map(str, counts.values()))


def string_splitting(question: str) -> Solution:
    """Solve by restarting from the first rule after each application, as the text says."""
    given = dict.fromkeys("ABCXYZ", 0)
    amounts = re.findall(
        r"(\d+) machine ([ABC])\b", _read(r"Now, you have (.*)", question)[0]
    )
    given |= {kind: int(number) for number, kind in amounts}
    reactions, limit = _reactions(question), _limit(question)
    final = _first_applicable(given, reactions, limit)
    # Then each of the applications that the text allows may exhaust its rule.
    unbounded = _first_applicable(given, reactions, limit**2)
    right = list(dict.fromkeys(map(_written, (final, unbounded))))
    near = [
        final | {"Z": final["Z"] + 1},
        _first_applicable(given, reactions[:-1], limit),
        given,
    ]
    return _one_of(
        right,
        [_written(each) for each in near],
        "the bound may count each use of a rule, or each rule once"
        if len(right) > 1
        else "",
    )


def string_synthesis(question: str) -> Solution:
    """Solve with rules that are exhausted one by one, and with rules that take turns."""
    kinds = re.findall(r"[\[({][ABC][\])}]", question.splitlines()[0])
    amounts = re.findall(r"(\d+) (\[\w\])", _read(r"Now, you have (.*)", question)[0])
    given = dict.fromkeys(kinds, 0) | {kind: int(number) for number, kind in amounts}
    reactions, limit = _reactions(question), _limit(question)
    finals = [solve(given, reactions, limit) for solve in (_first_applicable, _in_turn)]
    right = list(dict.fromkeys(map(_written, finals)))
    near = [finals[0] | {"[A]": finals[0]["[A]"] + 1}, given]
    ambiguous = "cycling through the rules may exhaust each or apply each once"
    return _one_of(
        right, [_written(each) for each in near], ambiguous if len(right) > 1 else ""
    )


def word_sequence_reversal(question: str) -> Solution:
    """Solve by reversing the list."""
    words = _read(r"Reverse this list of words: (.*)", question)[0].strip().split(", ")
    right = words[::-1]
    return _lists_of_words(right, [words, right[:-1], right[1:], [*right, right[0]]])


def word_sorting(question: str) -> Solution:
    """Solve by sorting by code points."""
    order, listed = _read(
        r"words in (ascending|descending) order .*comma-separated list: (.*)", question
    )
    words = listed.strip().split(", ")
    right = sorted(words, reverse=order == "descending")
    folded = sorted(words, key=str.lower, reverse=order == "descending")
    swapped = [*right[:-2], *right[:-3:-1]]
    return _lists_of_words(right, [words, right[::-1], folded, right[:-1], swapped])


def _lists_of_words(right: list[str], wrong: Sequence[list[str]]) -> Solution:
    return _solution(
        accepts=lambda text: [word.strip() for word in text.split(",")] == right,
        right=[", ".join(right)],
        wrong=[", ".join(each) for each in wrong],
    )


SOLVERS: Mapping[str, Solver] = {
    "ab": ab,
    "base_conversion": base_conversion,
    "binary_alternation": binary_alternation,
    "caesar_cipher": caesar_cipher,
    "group_anagrams": group_anagrams,
    "isomorphic_strings": isomorphic_strings,
    "letter_counting": letter_counting,
    "number_filtering": number_filtering,
    "number_sorting": number_sorting,
    "palindrome_generation": palindrome_generation,
    "palindrome_partitioning": palindrome_partitioning,
    "ransom_note": ransom_note,
    "spell_backward": spell_backward,
    "string_insertion": string_insertion,
    "string_manipulation": string_manipulation,
    "string_splitting": string_splitting,
    "string_synthesis": string_synthesis,
    "word_sequence_reversal": word_sequence_reversal,
    "word_sorting": word_sorting,
}


def _words_are_jumbled(entry: Mapping[str, Any]) -> str:
    jumbled = entry["question"].rpartition("unscramble these words: ")[2].split()
    words = entry["answer"].split()
    if len(jumbled) != len(words):
        return f"{len(jumbled)} words are given, the label has {len(words)}"
    pairs = zip(jumbled, words, strict=True)
    return "".join(
        f"{a!r} does not give {b!r}" for a, b in pairs if sorted(a) != sorted(b)
    )


def _words_are_reordered(entry: Mapping[str, Any]) -> str:
    given = entry["question"].partition("in the following sentence: ")[2].split()
    words = entry["answer"].split()
    if Counter(given) != Counter(words):
        return "the label has other words than the question"
    twice = [a for a, b in pairwise(words) if a == b]
    if twice:
        return f"{twice[0]!r} stands twice in a row"
    if words[-1] in _NEVER_LAST:
        return f"the sentence is cut off after {words[-1]!r}"
    return "a quotation mark stands alone" if {'"', "'"} & set(words) else ""


_NEVER_LAST = ("Mr.", "Mrs.", "Dr.", "www.")


PROPERTIES: Mapping[str, Property] = {
    "letter_jumble": Property(
        reason="Which of several words fits is a matter of natural language.",
        checked="each word of the label has the letters of the word that is given",
        violation=_words_are_jumbled,
    ),
    "sentence_reordering": Property(
        reason="Which order makes a sentence is a matter of natural language.",
        checked="the label has the words that are given, and is a sentence in form",
        violation=_words_are_reordered,
    ),
}
