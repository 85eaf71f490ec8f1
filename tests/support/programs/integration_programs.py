"""Runs programs of pages and tests in the environment of the framework that is tested."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from page_blocks import ROOT, Block, blocks

FRAMEWORKS = ROOT / "docs" / "frameworks.md"
OWN_TASKS = str(ROOT / "examples" / "own_tasks.py")
WITH_OWN_TASKS = {"REASONING_GYM_TASK_MODULES": OWN_TASKS}

PROGRAMS = Path(sys.executable).parent
"""Where the framework's own commands are."""

UNMAKABLE = (
    '{"task": "simple_integration", "seed": 2, "level": null,'
    ' "parameters": {"symbols": ["__import__(\'os\')"]}}'
)
"""A recipe as text, which passes for one and whose problem can't be made."""


def environment(home: Path) -> dict[str, str]:
    """The variables of a program: the framework's commands, and a home of its own."""
    return {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(home)}


def blocks_of(framework: str) -> list[Block]:
    """The blocks of a framework's page, or of its section."""
    page = ROOT / "docs" / f"{framework.lower()}.md"
    return blocks(page) if page.exists() else blocks(FRAMEWORKS, framework)


def page_program(framework: str) -> str:
    """The one program of a section that needs the framework."""
    [text] = [
        block.text
        for block in blocks_of(framework)
        if block.language == "python" and "test-integrations" in block.reason
    ]
    return text


def shown_output(framework: str) -> str:
    """The line that a section shows below its program."""
    [text] = [block.text for block in blocks_of(framework) if block.language == "text"]
    return text.strip()


def run_python(program: str, folder: Path) -> str:
    """Run a program in a folder, to its end; it has to succeed.

    Returns:
        The last line that it printed.
    """
    file = folder / "program.py"
    file.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(file)],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout.strip().rpartition("\n")[2]


def loaded(module: str, folder: Path) -> set[str]:
    """The top-level packages that a module brings along."""
    names = "print(*{name.partition('.')[0] for name in sys.modules})"
    return set(run_python(f"import sys\nimport {module}\n{names}", folder).split())


ATROPOS = {"atroposlib", "wandb"}
"""What no adapter may bring along."""


async def run(*command: str, cwd: Any, env: Mapping[str, str]) -> str:
    """Run a program to its end beside the server; it has to succeed.

    Returns:
        What it printed.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, env=env, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()
