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
    person, relative = re.findall(rf"\b{names}", question)[1:3]
    couples = re.findall(r"(\w+) is married to (\w+)\.", story)
    if word.endswith("-in-law"):
        spouses = {name for pair in couples if relative in pair for name in pair} - {
            relative
        }
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
    """Find a way that is as short with a press that toggles the light and leaves the number."""
    metadata = entry["metadata"]
    target = metadata["target_value"]
    limit = 50 * target + 500
    # Number, light, and whether a press was in the wrong one.
    layer = {(metadata["initial_value"], metadata["initial_state"] == "red", False)}
    seen = set(layer)
    for _ in metadata["solution_path"]:
        following = set()
        for number, red, idle in layer:
            for button in metadata["buttons"]:
                result = number
                value = button["value"]
                acts = button["active_state"] in ("any", "red" if red else "green")
                if acts:
                    if button["type"] == "multiply":
                        result *= value
                    else:
                        result += value if button["type"] == "add" else -value
                has_idled = idle or not acts
                if result == target and has_idled:
                    return ambiguous("as short with a press in the wrong light")
                if abs(result) < limit:
                    following.add((result, not red, has_idled))
        layer = following - seen
        seen |= layer
    return None
