"""Checks of items of the category graphs."""

from __future__ import annotations

import re

from ...records import Fault
from .faults import Entry, ambiguous, false_label


def family_relationships(entry: Entry) -> Fault | None:
    """Find words for the other person, and names that men and women have."""
    story, _, question = entry["question"].rstrip().rpartition("\n")
    word = entry["answer"]
    names = r"[A-Z]\w+"
    person, other = re.findall(rf"\b{names}", question)[1:3]
    couples = re.findall(r"(\w+) is married to (\w+)\.", story)
    if word.endswith("-in-law"):
        spouses = {one for pair in couples if other in pair for one in pair} - {other}
        families = re.findall(
            r"(\w+) is married to (\w+)\. They have (?:a child|children) called ([^.]*)\.",
            story,
        )
        if not any(
            person in parents and spouses & set(re.findall(names, children))
            for *parents, children in families
        ):
            return false_label("the word for the other person")
    couple = next((pair for pair in couples if person in pair), [person])
    if {"Phoenix", "Rain", "River", "Sage", "Sky", "Winter"}.issuperset(couple):
        return ambiguous(f"{person} is a man's and a woman's name")
    if word in ("niece", "nephew"):
        is_niece = bool(
            re.fullmatch(
                "A(bigail|lice|melia|nna|ria|urora|va)|Barbara|C(harlotte|hloe)"
                "|E(leanor|lizabeth|mily|mma)|Grace|Hannah|Isabella|Je(nnifer|ssica)|Karen"
                "|L(ily|inda|isa|ucy|una)|M(argaret|ary|ia)|Nova|Olivia|Patricia"
                "|S(arah|ophia|ophie|usan)|Victoria|Willow|Zoe",
                person,
            )
        )
        if len(couple) == 2:
            is_niece = person == couple[1]
        if is_niece != (word == "niece"):
            return false_label("the word for a person of other sex")
    return None


def quantum_lock(entry: Entry) -> Fault | None:
    """Find a shorter way with presses that toggle the light and leave the number."""
    metadata = entry["metadata"]
    target = metadata["target_value"]
    limit = 50 * target + 500
    layer = {(metadata["initial_value"], metadata["initial_state"] == "red")}
    seen = set(layer)
    for _ in range(len(metadata["solution_path"]) - 1):
        following = set()
        for number, red in layer:
            for button in metadata["buttons"]:
                result = number
                value = button["value"]
                if button["active_state"] in ("any", "red" if red else "green"):
                    if button["type"] == "multiply":
                        result *= value
                    else:
                        result += value if button["type"] == "add" else -value
                if result == target:
                    return ambiguous("shorter with a press in the wrong light")
                if abs(result) < limit:
                    following.add((result, not red))
        layer = following - seen
        seen |= layer
    return None
