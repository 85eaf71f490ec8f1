"""Landlock and fewer capabilities: no way to other processes and devices by files."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
import sys
from functools import cache
from pathlib import Path

from ._system import call_libc, prctl

# Numbers of system calls that the C library has no name for; the same on all architectures.
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_ADD_RULE = 445
LANDLOCK_RESTRICT_SELF = 446

# Rights over files, LANDLOCK_ACCESS_FS_* in linux/landlock.h.
READ_FILE = 0x4
MAKE_DEVICES = 0x840  # _MAKE_CHAR and _MAKE_BLOCK
CHANGE = 0x17B2  # all that write, make, remove or rename
REFER = 0x2000  # from version 2 on
TRUNCATE = 0x4000  # from version 3 on
# 0x2 is _WRITE_FILE; the others are a directory's.
RIGHTS_OF_A_FILE = READ_FILE | 0x2 | TRUNCATE

LANDLOCK_CREATE_RULESET_VERSION = 1
LANDLOCK_RULE_PATH_BENEATH = 1

LINUX_CAPABILITY_VERSION_3 = 0x20080522
CAPABILITIES_OVER_FILES = 0xE  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER


@cache
def capabilities_over_files() -> tuple[bytes, bytes]:
    """Return what gives up all capabilities of this process but those over files, for `capset`."""
    header = struct.pack("=Ii", LINUX_CAPABILITY_VERSION_3, 0)
    capabilities = ctypes.create_string_buffer(24)
    call_libc("capget", header, capabilities)
    effective, permitted, *_ = struct.unpack("=6I", capabilities)
    effective &= CAPABILITIES_OVER_FILES
    permitted &= CAPABILITIES_OVER_FILES
    return header, struct.pack("=6I", effective, permitted, 0, 0, 0, 0)


@cache
def landlock_rules(*, write: bool) -> int:
    """Return the descriptor of a Landlock ruleset; raises OSError where the kernel has none.

    All files can be read, and with `write` changed, but for devices; /proc and /sys are only read.
    """
    version = call_libc(
        "syscall", LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_CREATE_RULESET_VERSION
    )
    change = CHANGE
    if version >= 2:
        change |= REFER
    if version >= 3:
        change |= TRUNCATE
    handled = struct.pack("=Q", READ_FILE | change | MAKE_DEVICES)
    ruleset = call_libc("syscall", LANDLOCK_CREATE_RULESET, handled, len(handled), 0)
    allowed = [path for path in Path("/").iterdir() if path.name != "dev"]
    allowed += map(
        Path("/dev").joinpath, ("full", "null", "random", "shm", "urandom", "zero")
    )
    try:
        for path in allowed:
            rights = READ_FILE
            if write and path.name not in ("proc", "sys"):
                rights |= change
            # A path may not exist, or no longer.
            with contextlib.suppress(FileNotFoundError):
                _allow_beneath(ruleset, path, rights)
    except OSError:
        os.close(ruleset)
        raise
    return ruleset


def _allow_beneath(ruleset: int, path: Path, rights: int) -> None:
    """Add a rule; none for a symbolic link, whose target has rules of its own."""
    if path.is_symlink():
        return
    file = os.open(path, os.O_PATH)
    try:
        if not stat.S_ISDIR(os.fstat(file).st_mode):
            rights &= RIGHTS_OF_A_FILE
        rule = struct.pack("=Qi", rights, file)
        call_libc(
            "syscall", LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0
        )
    finally:
        os.close(file)


def isolate(*, write: bool = False) -> str | None:
    """Deny the calling thread other processes, for good: their memory, descriptors, terminals.

    The kernel lets nobody trace a process that has a capability more, whoever the user is, nor
    with Landlock any that is not under the same rules. What tracing would need, /proc needs too.
    """
    if sys.platform != "linux":
        return None  # the missing filter says it
    try:
        prctl("NO_NEW_PRIVS", 1)
        call_libc("capset", *capabilities_over_files())
        call_libc("syscall", LANDLOCK_RESTRICT_SELF, landlock_rules(write=write), 0)
    except OSError as error:
        return f"No Landlock: the kernel refuses it ({error.strerror})."
    return None
