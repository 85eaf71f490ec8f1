"""A griffe extension that prepares docstrings for the reference page.

It turns `Example:` into a code block, replaces "see `Class.method`" by that method's text, and
lets the description of an option be its docstring.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

from griffe import Docstring, Extension, Module, Object

_EXAMPLE = re.compile(r"^Example:\n((?:[ \t]+.*(?:\n|$)|\n)+)", re.MULTILINE)
_SEE = re.compile(r": see `([A-Z]\w+)\.(\w+)`\.$")


def fenced(match: re.Match[str]) -> str:
    """Return a section's text as a Python code block."""
    return f"```python\n{dedent(match[1]).strip()}\n```\n\n"


def everything_in(place: Object) -> Iterator[Object]:
    """Yield all objects below a module or a class, without imported ones."""
    for member in place.members.values():
        if not member.is_alias:
            yield member
            yield from everything_in(member)


class ReadableDocstrings(Extension):
    """Rewrites the docstrings of a package once it is loaded."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        documented = [one for one in everything_in(pkg) if one.docstring]
        classes = {one.name: one for one in documented if one.is_class}
        for one in documented:
            if found := _SEE.search(one.docstring.value):
                there = classes[found[1]].members[found[2]].docstring.value
                details = there.partition("\n\n")[2]
                one.docstring.value = (
                    f"{one.docstring.value[: found.start()]}.\n\n{details}"
                )
        for one in everything_in(pkg["problems.options"]):
            if one.is_attribute and str(one.value).startswith("option("):
                default, about, *_ = one.value.arguments
                one.value, one.docstring = (
                    default,
                    Docstring(literal_eval(about), parent=one),
                )
        for one in documented:
            one.docstring.value = _EXAMPLE.sub(fenced, one.docstring.value)
