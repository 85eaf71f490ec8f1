"""Disks of their own for tests; one that needs them is skipped where nothing may be mounted."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[Path]:
    """A folder on which something is mounted."""
    if not shutil.which("mount") or os.geteuid() != 0:
        pytest.skip("mounting needs root")
    folder.mkdir()
    command = ["mount", *arguments, str(folder)]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"mounting is not allowed here: {tried.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def memory_disk(folder: Path, size: str) -> Iterator[Path]:
    """A disk of so many bytes, such as "64k"."""
    with mounted(folder, "-t", "tmpfs", "-o", f"size={size}", "tmpfs") as disk:
        yield disk


def enlarge(disk: Path, size: str) -> None:
    """Give a memory disk more bytes."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)
