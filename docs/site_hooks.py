"""MkDocs hooks: pages for the files beside docs/, and links to them that work on the site."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.md",
}
"""What lies at the top of the repository, and its page."""

FOLDERS = ("examples", "deploy")
"""Folders at the top whose files are on the site as they are."""

_TARGET = re.compile(r"(\]\()([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is linked to from outside of docs/."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source == "LICENSE":
            text = f"# Licence\n\n```text\n{text}```\n"
        files.append(File.generated(config, page, content=text))
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("*.*")):
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages: `docs/data.md` in README, `../README.md` in docs/."""
    at_top = page.file.src_uri in PAGES.values()

    def target(match: re.Match[str]) -> str:
        path = match[2] if at_top else match[2].removeprefix("../")
        if at_top or path != match[2]:
            path = PAGES.get(path, path.removeprefix("docs/"))
        return match[1] + path

    return _TARGET.sub(target, markdown)
