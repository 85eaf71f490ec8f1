"""What README and the pages say holds: links, names, messages. Nothing is run."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import yaml
from page_blocks import BESIDE, PAGES, ROOT, anchors, blocks, links

from reasoning_gym_environment.cli import COMMANDS
from reasoning_gym_environment.settings import EnvironmentSettings

PACKAGE = ROOT / "reasoning_gym_environment"
TROUBLES = ROOT / "docs" / "reliability.md"
EXPLAINED = re.compile(r"^\*\*(`+)(.+?)\1\*\*<br>$", re.MULTILINE)
MESSAGES = EXPLAINED.findall(TROUBLES.read_text(encoding="utf-8"))


CODE_COLUMNS = 100
"""What docs/stylesheets/site.css has room for in a window of 1,440 pixels."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_first_code_of_a_page_needs_no_scrolling(page: Path) -> None:
    for block in blocks(page)[: 2 if page.name == "README.md" else 1]:
        assert max(map(len, block.text.splitlines())) <= CODE_COLUMNS


@pytest.mark.parametrize("page", ["README.md", "docs/train.md"])
def test_the_server_beside_init_vllm_serves_the_model_of_that_configuration(
    page: str,
) -> None:
    [block] = [block.text for block in blocks(ROOT / page) if "init vllm" in block.text]
    settings = yaml.safe_load(
        (PACKAGE / "configs" / "vllm.yaml").read_text(encoding="utf-8")
    )
    assert re.findall(r"^vllm serve (\S+)", block, re.M) == [
        settings["openai"][0]["model_name"]
    ]


@pytest.mark.parametrize("page", [*PAGES, *BESIDE], ids=lambda page: page.name)
def test_tables_name_their_columns_for_readers_without_a_screen(page: Path) -> None:
    heads = re.findall(r"^(\|.*)\n\| *:?-", page.read_text(encoding="utf-8"), re.M)
    assert [head for head in heads if re.search(r"\| *\|", head)] == []


@pytest.mark.parametrize("page", [*PAGES, *BESIDE], ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_say_their_language_and_have_only_commands_and_settings_that_exist(
    page: Path,
) -> None:
    assert {block.language for block in blocks(page)} <= {
        "",
        "sh",
        "python",
        "yaml",
        "text",
        "toml",
    }
    shown = "\n".join(block.text for block in blocks(page) if block.language == "sh")
    assert set(
        re.findall(r"^reasoning-gym-environment ([a-z]\w*)", shown, re.M)
    ) <= set(COMMANDS)
    known = set(EnvironmentSettings.model_fields)
    assert set(re.findall(r"--env\.(\w+)", shown)) <= known
    for block in blocks(page):
        if block.language == "yaml":
            assert set(yaml.safe_load(block.text).get("env", {})) <= known


def texts_of(path: Path) -> list[str]:
    """Every text in a module's source, `…` for what is put into it."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = [
                v.value if isinstance(v, ast.Constant) else "…" for v in node.values
            ]
            found.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(re.sub(r"%[\w.]+|\{[^}]*\}", "…", node.value))
    return found


@cache
def texts() -> str:
    """Every text in the package's source."""
    return "\n".join(text for path in PACKAGE.rglob("*.py") for text in texts_of(path))


def is_said(part: str) -> bool:
    """Whether it is in the source, in one piece or put together of two."""
    halves = [
        (part[:space], part[space:]) for space in range(len(part)) if part[space] == " "
    ]
    whole = [(part, ""), *halves]
    return any(
        all(half.strip(" '():;,.") in texts() for half in pair) for pair in whole
    )


def test_every_explained_message_exists_in_the_code() -> None:
    assert len(MESSAGES) > 30
    for _, message in MESSAGES:
        assert all(is_said(part) for part in message.split("…")), message
