"""What code in a text tries against other processes, terminals and devices.

Each attack is an expression that is true if it succeeds. It changes nothing where it does.
"""

from collections.abc import Iterable, Mapping

PROLOGUE = """
import ctypes, fcntl, os, socket
libc, X86 = ctypes.CDLL(None, use_errno=True), os.uname().machine == 'x86_64'
def tries(attempt, *arguments):
    try:
        return attempt(*arguments)
    except OSError:
        return None
def opens(path, flags=os.O_RDONLY):
    return tries(os.open, path, flags | os.O_NONBLOCK | os.O_NOCTTY) is not None
def calls(number, *arguments):
    return libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
"""

ON_A_PROCESS = {
    "opens its descriptors": "any([opens(f'/proc/{pid}/fd/{fd}') for fd in range(64)])",
    "takes a descriptor": "calls(438, calls(434, pid, 0), 0, 0) >= 0",
    "opens its memory": "opens(f'/proc/{pid}/mem')",
    "opens its memory to write": "opens(f'/proc/{pid}/mem', os.O_RDWR)",
    "reads from its memory": "calls(310 if X86 else 270, pid, 0, 0, 0, 0, 0) >= 0",
    "writes to its memory": "calls(311 if X86 else 271, pid, 0, 0, 0, 0, 0) >= 0",
    "reads its environment": "tries(lambda: open(f'/proc/{pid}/environ', 'rb').read(9))",
    "reads its maps": "tries(lambda: open(f'/proc/{pid}/maps', 'rb').read(9))",
    "traces it": "calls(101 if X86 else 117, 0x4206, pid, 0, 0) >= 0",
    "has the kernel signal it": (
        "tries(fcntl.fcntl, socket.socketpair()[0], fcntl.F_SETOWN, pid) is not None"
    ),
}
"""Needs Landlock only where the process is of the same user and has no capability more."""

ELSEWHERE = {
    "makes it the first to be killed": "opens(f'/proc/{pid}/oom_score_adj', os.O_WRONLY)",
    "reads a terminal": "opens(TERMINAL)",
    "writes to a terminal": "opens(TERMINAL, os.O_WRONLY)",
    "writes to the kernel": "opens('/proc/sys/kernel/core_pattern', os.O_WRONLY)",
    "makes a file among devices": "opens('/dev', os.O_TMPFILE | os.O_WRONLY)",
    "opens a raw socket": "tries(socket.socket, 17, socket.SOCK_RAW, 0x0300) is not None",
}
"""Needs Landlock, but for the last."""


def program(attacks: Mapping[str, str], pids: Iterable[int], *, terminal: str) -> str:
    """Return code that tries the attacks on each process but its own; it raises if one succeeds."""
    return f"""{PROLOGUE}
TERMINAL, found = {terminal!r}, []
for pid in {list(pids)}:
    for name, attack in {dict(attacks)}.items():
        if pid != os.getpid() and eval(attack):
            found.append((name, pid))
if found:
    raise RuntimeError(found)
"""
