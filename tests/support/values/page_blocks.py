"""README and the pages of docs/: their text, headings and blocks of code."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
)
BESIDE = (
    *(ROOT / "ARCHITECTURE.md", ROOT / "benchmarks" / "README.md"),
    *sorted((ROOT / "research").glob("**/*.md")),
)
"""What only maintainers read, beside the code that it is about."""

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+?) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_PROMPT = re.compile(r"^\$ (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of code.

    Attributes:
        reason: why it can't run here, from a comment above it; empty where it can.
    """

    language: str
    text: str
    reason: str


@cache
def blocks(page: Path, section: str = "") -> list[Block]:
    """The blocks of a page, or of what stands below one of its `##` headings.

    What stands behind `$ ` in a block without a language is `sh`.
    """
    text = page.read_text(encoding="utf-8")
    if section:
        below = rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)"
        [text] = re.findall(below, text, re.MULTILINE | re.DOTALL)
    found = [
        Block(
            language=match["language"], text=match["text"], reason=match["reason"] or ""
        )
        for match in _BLOCK.finditer(text)
    ]
    return [
        Block(language="sh", text="\n".join(prompts), reason=block.reason)
        if not block.language and (prompts := _PROMPT.findall(block.text))
        else block
        for block in found
    ]


def to_run(page: Path, language: str) -> list[str]:
    """The texts of a page's blocks that can run here."""
    return [b.text for b in blocks(page) if b.language == language and not b.reason]


def links(page: Path) -> list[str]:
    """The targets within the repository that a page links to."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    return [target for target in _LINK.findall(text) if "://" not in target]


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as MkDocs makes them."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    plain = [re.sub(r"[^\w\s-]", "", heading) for heading in _HEADING.findall(text)]
    return {re.sub(r"[-\s]+", "-", heading.strip().lower()) for heading in plain}
