"""Limits of worker processes: memory, time, descriptors, and system calls on Linux.

Each role has one function, called before the process starts to work, that returns sentences about
what this system does not enforce. A single limit returns such a sentence, or None when it holds.

The system call filter denies by default, with seccomp. One table holds the numbers of all calls
that some role may make; each role lists the calls that it needs. Four roles have a filter: a
verifier's child computes and writes its reply, a zygote forks such children besides, a generator
reads files, starts threads and runs event loops, and a contained function does the same with
alarms. Any other call fails with EPERM. A call of a foreign architecture or of the x32 ABI kills
the process. Landlock and fewer capabilities keep those roles that open files from other processes
and from devices.

A filter also holds for code that an answer managed to run. It neither hides memory from that code
nor keeps it from writing a reply of its own: the screen does. By hand, since `pyseccomp` needs a
library, takes five times as long in a child, and is unmaintained.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import math
import os
import platform
import re
import resource
import signal
import stat
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType

from ..errors import WorkerStartError

AUDIT = MappingProxyType({"x86_64": 0xC000003E, "aarch64": 0xC00000B7})
"""The kernel's identifiers of the architectures, AUDIT_ARCH_*, by the machine's name in `uname`."""

_TABLE = """
    mmap 9 222, mprotect 10 226, munmap 11 215, brk 12 214, mremap 25 216, madvise 28 233,
    read 0 63, write 1 64, open 2 -, close 3 57, stat 4 -, fstat 5 80, lstat 6 -, poll 7 -,
    lseek 8 62, ioctl 16 29, pread64 17 67, writev 20 66, access 21 -, select 23 -, dup 32 23,
    fcntl 72 25, getcwd 79 17, readlink 89 -, getdents64 217 61, epoll_wait 232 -,
    epoll_ctl 233 21, openat 257 56, newfstatat 262 79, readlinkat 267 78, faccessat 269 48,
    pselect6 270 72, ppoll 271 73, epoll_pwait 281 22, epoll_create1 291 20, pipe2 293 59,
    statx 332 291, close_range 436 436, faccessat2 439 439,
    sendto 44 206, recvfrom 45 207, getsockname 51 204, getpeername 52 205, socketpair 53 199,
    rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, sched_yield 24 124,
    getpid 39 172, clone 56 220, exit 60 93, wait4 61 260, getppid 110 173, setsid 112 157,
    sigaltstack 131 132, prctl 157 167, gettid 186 178, futex 202 98, sched_getaffinity 204 123,
    set_tid_address 218 96, restart_syscall 219 128, exit_group 231 94, set_robust_list 273 99,
    prlimit64 302 261, rseq 334 293, clone3 435 435,
    nanosleep 35 101, gettimeofday 96 169, clock_gettime 228 113, clock_getres 229 114,
    clock_nanosleep 230 115,
    uname 63 160, getrusage 98 165, sysinfo 99 179, times 100 153, getuid 102 174, getgid 104 176,
    geteuid 107 175, getegid 108 177, getrandom 318 278,
    alarm 37 -, getitimer 36 102, setitimer 38 103, dup2 33 -, dup3 292 24, readv 19 65,
    chdir 80 49, getpgrp 111 -, getpgid 121 155, statfs 137 43, fstatfs 138 44, fadvise64 221 223,
    socket 41 198, connect 42 203, bind 49 200, shutdown 48 210, getsockopt 55 209,
    setsockopt 54 208, sendmsg 46 211, sendmmsg 307 269, recvmsg 47 212, recvmmsg 299 243,
    execve 59 221, waitid 247 95, pipe 22 -, arch_prctl 158 -, umask 95 166,
    creat 85 -, mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -, unlinkat 263 35,
    rename 82 -, renameat 264 38, renameat2 316 276, link 86 -, linkat 265 37, symlink 88 -,
    symlinkat 266 36, truncate 76 45, ftruncate 77 46, fallocate 285 47, pwrite64 18 68,
    pwritev 296 70, fsync 74 82, fdatasync 75 83, flock 73 32, chmod 90 -, fchmod 91 52,
    fchmodat 268 53, utimensat 280 88
"""
"""Name, number on x86_64, number on aarch64: memory, files, sockets, processes, time, identity;
from `alarm` on, what contained functions may do besides, always or where it is allowed."""

SYSTEM_CALLS: Mapping[str, list[int | None]] = MappingProxyType(
    {
        name: [int(number) if number.isdigit() else None for number in numbers]
        for name, *numbers in (row.split() for row in _TABLE.split(","))
    }
)
"""Numbers in the order of `AUDIT`; None where an architecture lacks the call."""

_OFFSETS = MappingProxyType(
    {
        "number": 0,
        "architecture": 4,
        "first": 16,
        "second": 24,
        "third": 32,
        "fifth": 48,
    }
)
"""Of the call's number, the architecture and the arguments in struct seccomp_data. Both
architectures are little-endian: an argument's low word comes first, its high one 4 bytes later."""


def _instruction(
    code: str,
    operand: int,
    *,
    then: int = 0,
    otherwise: int = 0,
) -> bytes:
    """Pack one struct sock_filter; jumps count the instructions to skip."""
    codes = {
        "load": 0x20,  # BPF_LD | BPF_W | BPF_ABS
        "if equal": 0x15,  # BPF_JMP | BPF_JEQ | BPF_K
        "if at least": 0x35,  # BPF_JMP | BPF_JGE | BPF_K
        "if any bit": 0x45,  # BPF_JMP | BPF_JSET | BPF_K
        "return": 0x06,  # BPF_RET | BPF_K
    }
    return struct.pack("=HBBI", codes[code], then, otherwise, operand)


_ALLOW = _instruction("return", 0x7FFF0000)
_REFUSE = _instruction("return", 0x00050000 | errno.EPERM)


def _if_equal(operand: int, body: Sequence[bytes]) -> list[bytes]:
    """Run the body if the loaded word equals the operand."""
    return [_instruction("if equal", operand, otherwise=len(body)), *body]


def _unless_any_bit(argument: str, bits: int) -> list[bytes]:
    """Allow the call unless the argument has one of these bits."""
    load = _instruction("load", _OFFSETS[argument])
    return [load, _instruction("if any bit", bits, then=1), _ALLOW, _REFUSE]


def _if_one_of(argument: str, *values: int) -> list[bytes]:
    """Allow the call if the argument is one of these values."""
    equal = [step for value in values for step in _if_equal(value, [_ALLOW])]
    return [_instruction("load", _OFFSETS[argument]), *equal, _REFUSE]


def _if_null(argument: str) -> list[bytes]:
    """Allow the call if the argument is a null pointer."""
    low, high = (_instruction("load", _OFFSETS[argument] + half) for half in (0, 4))
    return [low, *_if_equal(0, [high, *_if_equal(0, [_ALLOW])]), _REFUSE]


_Rules = Mapping[str, Sequence[bytes]]
"""What happens to each system call, by its name: instructions that end in a decision."""


def _allow(names: str) -> dict[str, Sequence[bytes]]:
    """Allow these system calls with any arguments."""
    return {name: [_ALLOW] for name in names.split()}


# Not CLONE_NEW*, CLONE_UNTRACED, CLONE_PARENT, CLONE_PTRACE, CLONE_VM
_PLAIN_FORK = _unless_any_bit("first", 0x7E82A100)
_THREAD = _if_one_of("first", 0x3D0F00, 0x7D0F00)  # pthread_create's flags, of glibc and of musl
_CONNECTED_PAIR = _if_one_of("second", 0x80001)  # SOCK_STREAM | SOCK_CLOEXEC: to each other alone
_PR_SET = MappingProxyType(
    {
        "PDEATHSIG": 1,
        "DUMPABLE": 4,
        "SECCOMP": 22,
        "NO_NEW_PRIVS": 38,
    }
)

_COMPUTE: _Rules = {
    "mmap": _unless_any_bit("third", 0x4),  # PROT_EXEC
    "mprotect": _unless_any_bit("third", 0x4),
    "madvise": _if_one_of("third", 4),  # MADV_DONTNEED, all that malloc asks for
    **_allow("brk munmap mremap futex getrandom clock_gettime gettimeofday getpid gettid"),
    **_allow("sched_yield rt_sigreturn restart_syscall exit exit_group"),
}
"""What a running interpreter needs: memory that is not executable, the clock, and an end."""

_FORK_AND_WAIT: _Rules = {
    "clone": _PLAIN_FORK,
    "prctl": _if_one_of("first", *_PR_SET.values()),
    "prlimit64": _if_one_of("first", 0),
    "socketpair": _CONNECTED_PAIR,
    **_allow("write read close rt_sigprocmask wait4 setsid close_range set_robust_list rseq"),
}
"""What a zygote needs besides, whose only descriptors are sockets to its children and its host.

It can't kill: a filter can't tell its own children from other processes.
"""

_GENERATE: _Rules = {
    "open": _unless_any_bit("second", 0x243),  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC
    "ioctl": _if_one_of("second", 0x5401, 0x5413, 0x5421),  # TCGETS, TIOCGWINSZ, FIONBIO
    "madvise": _if_one_of("third", 4),  # MADV_DONTNEED
    "sendto": _if_one_of("fifth", 0),
    "socketpair": _CONNECTED_PAIR,
    "clone": _THREAD,
    # F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC
    "fcntl": _if_one_of("second", 1, 2, 3, 1030),
    "openat": _unless_any_bit("third", 0x243),
    "prlimit64": _if_one_of("first", 0),
    # its flags are in memory; libraries then call clone
    "clone3": [_instruction("return", 0x00050000 | errno.ENOSYS)],
    **_allow("mmap mprotect munmap brk mremap"),
    # files for reading; writing needs a descriptor that is open already
    **_allow("read write close stat fstat lstat lseek pread64 writev access dup getcwd readlink"),
    **_allow("getdents64 newfstatat readlinkat faccessat pipe2 statx faccessat2"),
    # time, threads, signals to itself
    **_allow("poll rt_sigaction rt_sigprocmask rt_sigreturn select sched_yield nanosleep exit"),
    **_allow("gettimeofday sigaltstack futex sched_getaffinity set_tid_address restart_syscall"),
    **_allow("clock_gettime clock_getres clock_nanosleep exit_group pselect6 ppoll"),
    **_allow("set_robust_list rseq"),
    # event loops that wake themselves
    **_allow("getsockname getpeername recvfrom epoll_wait epoll_ctl epoll_pwait epoll_create1"),
    # identity and resources
    **_allow("getpid uname getrusage sysinfo times getuid getgid geteuid getegid getppid gettid"),
    **_allow("getrandom"),
}
"""What all tasks, and the programs of `codeio`, need to make problems: no file is written, no
process started or signaled, no socket opened to anybody."""


_FUNCTION: _Rules = {
    **_GENERATE,
    "prlimit64": _if_null("third"),  # reads limits alone: root could raise them
    **_allow("alarm getitimer setitimer dup2 dup3 readv chdir getpgrp getpgid statfs fstatfs"),
    **_allow("fadvise64"),
}
"""What contained functions need: as making problems, and alarms, which end some computations."""

_LOOSER: Mapping[str, _Rules] = MappingProxyType(
    {
        "network": {
            "ioctl": _if_one_of("second", 0x5401, 0x5413, 0x5421, 0x541B),  # FIONREAD as well
            "fcntl": _if_one_of("second", *range(5), 1030),  # F_SETFL as well
            **_allow("socket connect bind shutdown getsockopt setsockopt"),
            **_allow("sendto sendmsg sendmmsg recvmsg recvmmsg"),
        },
        # They can't leave the process group, with which they are killed, nor send signals.
        "processes": {
            "clone": [*_THREAD[:-1], *_PLAIN_FORK],
            "arch_prctl": _if_one_of("first", 0x1002),  # ARCH_SET_FS
            **_allow("execve wait4 waitid pipe umask close_range"),
        },
        "write": {
            **_allow("open openat creat mkdir mkdirat rmdir unlink unlinkat rename renameat"),
            **_allow("renameat2 link linkat symlink symlinkat truncate ftruncate fallocate"),
            **_allow("pwrite64 pwritev fsync fdatasync flock chmod fchmod fchmodat utimensat"),
            **_allow("umask"),
            # locks as well; not F_SETOWN, with which the kernel signals any process
            "fcntl": _if_one_of("second", *range(8), *range(36, 39), 1030),
        },
    }
)
"""What a contained function may be allowed besides."""


def _assemble(architecture: str, rules: _Rules) -> bytes:
    """Apply each rule to its system call, if the architecture has the call."""
    column = list(AUDIT).index(architecture)
    numbers = ((SYSTEM_CALLS[name][column], body) for name, body in rules.items())
    tests = (_if_equal(number, body) for number, body in numbers if number is not None)
    return b"".join(step for test in tests for step in test)


def _begin(architecture: str) -> bytes:
    """Kill callers of a foreign architecture or of the x32 ABI, then load the call's number."""
    kill = _instruction("return", 0x80000000)
    return b"".join(
        [
            _instruction("load", _OFFSETS["architecture"]),
            _instruction("if equal", AUDIT[architecture], then=1),
            kill,
            _instruction("load", _OFFSETS["number"]),
            _instruction("if at least", 0x40000000, otherwise=1),  # the numbers of x32
            kill,
        ]
    )


@cache
def _begin_compute(architecture: str) -> bytes:
    return _begin(architecture) + _assemble(architecture, _COMPUTE)


def verifier_child_filter(
    architecture: str, reply_fd: int, *, requests_fd: int | None = None
) -> bytes:
    """Assemble the filter of a child that may write to one descriptor and read from another."""
    pipes = {"write": _if_one_of("first", reply_fd)}
    if requests_fd is not None:
        pipes["read"] = _if_one_of("first", requests_fd)
    return _begin_compute(architecture) + _assemble(architecture, pipes) + _REFUSE


@cache
def zygote_filter(architecture: str) -> bytes:
    """Assemble the filter of a process that forks children and waits for their replies."""
    poll = _allow("poll" if architecture == "x86_64" else "ppoll")
    rules = {**_FORK_AND_WAIT, **poll}
    return _begin_compute(architecture) + _assemble(architecture, rules) + _REFUSE


def generator_filter(architecture: str) -> bytes:
    """Assemble the filter of a process that makes problems."""
    return _begin(architecture) + _assemble(architecture, _GENERATE) + _REFUSE


@cache
def function_filter(architecture: str, allow: frozenset[str]) -> bytes:
    """Assemble a contained function's filter; `allow` names "network", "processes" or "write"."""
    rules = dict(_FUNCTION)
    for loosening in sorted(allow):
        rules |= _LOOSER[loosening]
    return _begin(architecture) + _assemble(architecture, rules) + _REFUSE


_OWN = os.uname().machine if sys.platform == "linux" and sys.maxsize > 2**32 else ""
"""The architecture, if there is a filter for it; a 32-bit interpreter uses other numbers."""

if _OWN in AUDIT:  # cached before any fork: the first use costs a child more than the filter itself
    zygote_filter(_OWN)
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
if _LIBC:
    _LIBC.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    _LIBC.capset.argtypes = (ctypes.c_char_p, ctypes.c_char_p)
    _LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    _LIBC.mmap.restype = ctypes.c_void_p
    _LIBC.mremap.argtypes = (ctypes.c_void_p, *[ctypes.c_size_t] * 2, ctypes.c_int, ctypes.c_void_p)
    _LIBC.mremap.restype = ctypes.c_void_p


class _FilterProgram(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _libc(function: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Call a function of the C library; raises OSError if it fails."""
    result: int = -1 if _LIBC is None else getattr(_LIBC, function)(*arguments)
    if result < 0:
        number = ctypes.get_errno() or errno.ENOSYS
        raise OSError(number, os.strerror(number))
    return result


def _prctl(option: str, first: int, second: int = 0) -> None:
    """Set a property of this process; raises OSError if the kernel refuses."""
    _libc("prctl", _PR_SET[option], first, second, 0, 0)


def filter_verifier_child(reply_fd: int, *, requests_fd: int | None = None) -> str | None:
    """Restrict the calling thread for good to computing and its pipes.

    Call it last: no module can be imported afterwards. It binds the calling thread and all that
    this thread starts.

    Args:
        reply_fd: the only descriptor that can be written to.
        requests_fd: the only descriptor that can be read from, if any.
    """
    return _install(partial(verifier_child_filter, reply_fd=reply_fd, requests_fd=requests_fd))


def filter_zygote() -> str | None:
    """Restrict the calling thread for good to computing, forking and waiting.

    Its children can put the narrower filter on top. Returns as `filter_verifier_child`.
    """
    return _install(zygote_filter)


def filter_function(allow: frozenset[str]) -> str | None:
    """Restrict the calling thread for good to a contained function: see `filter_verifier_child`."""
    return _install(lambda architecture: function_filter(architecture, allow))


def _install(assemble: Callable[[str], bytes]) -> str | None:
    """Put the calling thread under the filter of its architecture."""
    if _OWN not in AUDIT:
        return f"No system call filter: unsupported on {platform.system()}, {platform.machine()}."
    program = assemble(_OWN)
    header = _FilterProgram(len(program) // 8, program)
    try:
        _prctl("NO_NEW_PRIVS", 1)
        _prctl("SECCOMP", 2, ctypes.addressof(header))  # SECCOMP_MODE_FILTER
    except OSError as error:
        return f"No system call filter: the kernel refuses it ({error.strerror})."
    return None


def protect_process() -> str | None:
    """Keep processes of the same user from tracing this one, and end it with its parent.

    A fork inherits the first and must ask for the second itself.
    """
    if sys.platform != "linux":
        return f"No protection from tracing, no end with the parent: {sys.platform} has neither."
    try:
        _prctl("DUMPABLE", 0)
        _prctl("PDEATHSIG", signal.SIGKILL)
    except OSError as error:
        return f"No protection from tracing or no end with the parent: {error.strerror}."
    return None


@cache
def _capabilities_over_files() -> tuple[bytes, bytes]:
    """Return what gives up all capabilities of this process but those over files, for `capset`."""
    header = struct.pack("=Ii", 0x20080522, 0)
    capabilities = ctypes.create_string_buffer(24)
    _libc("capget", header, capabilities)
    effective, permitted, *_ = struct.unpack("=6I", capabilities)
    files = 0xE  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH and CAP_FOWNER
    return header, struct.pack("=6I", effective & files, permitted & files, 0, 0, 0, 0)


@cache
def landlock_rules(*, write: bool) -> int:
    """Return the descriptor of a Landlock ruleset; raises OSError where the kernel has none.

    All files can be read, and with `write` changed, but for devices; /proc and /sys are only read.
    """
    abi = _libc("syscall", 444, None, 0, 1)  # landlock_create_ruleset, asked for its version
    # LANDLOCK_ACCESS_FS_READ_FILE; _MAKE_CHAR and _MAKE_BLOCK
    read = 0x4
    devices = 0x840
    # all that write, make, remove or rename; _REFER from ABI 2 on, _TRUNCATE from 3 on
    change = 0x17B2 | (0x2000 if abi >= 2 else 0) | (0x4000 if abi >= 3 else 0)
    ruleset = _libc("syscall", 444, struct.pack("=Q", read | change | devices), 8, 0)
    allowed = [path for path in Path("/").iterdir() if path.name != "dev"]
    allowed += map(Path("/dev").joinpath, ("full", "null", "random", "shm", "urandom", "zero"))
    try:
        for path in allowed:
            rights = read | change if write and path.name not in ("proc", "sys") else read
            with contextlib.suppress(FileNotFoundError):  # it does not exist, or no longer
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
            rights &= 0x4006  # those that a file can have
        _libc("syscall", 445, ruleset, 1, struct.pack("=Qi", rights, file), 0)  # landlock_add_rule
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
        _prctl("NO_NEW_PRIVS", 1)
        _libc("capset", *_capabilities_over_files())
        _libc("syscall", 446, landlock_rules(write=write), 0)  # landlock_restrict_self
    except OSError as error:
        return f"No Landlock: the kernel refuses it ({error.strerror})."
    return None


def keep_shared_memory_private() -> None:
    """Put copies in place of the memory that this process shares, which forks then do not share."""
    maps = Path("/proc/self/maps")
    if _LIBC is None or not maps.exists():
        return
    # addresses, rights, offset, device, inode, name; a device's memory can't be copied
    shared = r"^(\w+)-(\w+) rw.s \S+ \S+ \S+ +/(?!dev/(?!shm/|zero))"
    for addresses in re.findall(shared, maps.read_text(), re.MULTILINE):
        begin, end = (int(address, 16) for address in addresses)
        size = end - begin
        # PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS
        copy = _LIBC.mmap(None, size, 0x3, 0x22, -1, 0)
        if copy == ctypes.c_void_p(-1).value:
            raise WorkerStartError(f"no copy of {size} bytes of memory that the import shares")
        ctypes.memmove(copy, begin, size)
        # MREMAP_MAYMOVE | MREMAP_FIXED
        if _LIBC.mremap(copy, size, size, 0x3, begin) != begin:
            raise WorkerStartError(f"{size} bytes of memory that the import shares stay shared")


VERIFIER_MEMORY = 512 * 2**20
"""Address space in bytes that a verifier's child may have beyond what its host has."""

WORKER_MEMORY = 4 * 2**30
"""Address space in bytes that a generator or verifier host may have beyond the loaded library: many
times what the hungriest level needs."""

DATASET_MEMORY = 512 * 2**20
"""Bytes by which a worker may grow before it evicts datasets."""


def address_space(pid: int | str = "self") -> int:
    """Measure a process's address space in bytes; return 0 if the system does not report it.

    Uses the plainest calls: a fresh fork pays for every page that it touches.
    """
    try:
        statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY)
    except OSError:  # there is no /proc, or it hides other processes
        return 0
    try:
        content = os.read(statm, 64)
    except ProcessLookupError:  # it has just ended
        return 0
    finally:
        os.close(statm)
    return int(content.split()[0]) * resource.getpagesize()


def _limit(kind: int, value: int) -> None:
    """Lower a limit for good; a limit that is already lower stays."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _limit_memory(more: int) -> list[str]:
    """Limit the address space to its current size plus `more` bytes, and disable core files."""
    _limit(resource.RLIMIT_CORE, 0)
    size = address_space()
    if size:
        _limit(resource.RLIMIT_AS, size + more)
        return []
    return [f"No memory limit: it needs /proc, which this system ({sys.platform}) lacks."]


def _redirect_standard_streams() -> None:
    """Connect standard input, output and error to the null device."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)


def tasks_of(leader: int, *, alone: bool) -> int:
    """Count the threads of a process group, or of its leader alone; 0 where there is no /proc."""
    count = 0
    for status in Path("/proc").glob(f"{leader if alone else '[0-9]*'}/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            fields = status.read_bytes().rpartition(b")")[2].split()
            count += int(fields[17]) if int(fields[2]) == leader else 0
    return count


def _detach(kept: Sequence[int]) -> list[str]:
    """Separate a fresh fork from its parent: own session, no tracing, only these descriptors."""
    gc.disable()
    os.setsid()
    gap = protect_process()
    begin = 3
    for descriptor in sorted(kept):
        os.closerange(begin, descriptor)
        begin = descriptor + 1
    os.closerange(begin, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return [gap] if gap else []


def enter_single_use_child(reply: int, *, requests: int | None = None, seconds: float) -> list[str]:
    """Put a fresh fork of a zygote, which has the memory limit, under its other limits.

    Args:
        reply: the only descriptor that it can write to.
        requests: the only descriptor that it can read from, if any.
        seconds: processor time; the host's deadline is the sharper limit.
    """
    gaps = _detach([reply] if requests is None else [reply, requests])
    _limit(resource.RLIMIT_CPU, math.ceil(seconds) + 1)
    return gaps + _deny_access(reply, requests)


def _deny_access(reply: int, requests: int | None) -> list[str]:
    """Put files, sockets, processes and signals out of reach, all but the two descriptors."""
    for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
        _limit(kind, 0)
    gap = filter_verifier_child(reply, requests_fd=requests)
    return [gap] if gap else []


def enter_persistent_worker(reply: int, requests: int, *, seconds: float) -> list[str]:
    """Put a fresh fork of a verifier host under its limits; see `enter_single_use_child`."""
    _redirect_standard_streams()
    gaps = _limit_memory(VERIFIER_MEMORY)
    return gaps + enter_single_use_child(reply, requests=requests, seconds=seconds)


def enter_zygote(reply: int) -> bool:
    """Put a fresh fork of a verifier host under limits that the children it forks inherit.

    It runs the oracle and no answer of a model, but the oracle came from outside as well.

    Returns:
        Whether it can kill its children. Where it can't, they die with it.
    """
    _redirect_standard_streams()
    _limit_memory(VERIFIER_MEMORY)
    _detach([reply])
    return filter_zygote() is not None


def enter_function_child(
    reply: int,
    *,
    memory: int,
    seconds: float,
    allow: frozenset[str],
) -> list[str]:
    """Put a fresh fork of a function host under its limits. It can read files and import modules.

    Args:
        reply: the only open descriptor, beside standard streams that lead nowhere.
        memory: bytes of address space beyond what its host has.
        seconds: wall time; its threads may use as much on each core.
        allow: what else it may do: see `function_filter`.
    """
    _redirect_standard_streams()
    gaps = _limit_memory(memory)
    isolation_gap = isolate(write="write" in allow)
    gaps += _detach([reply])
    gc.enable()
    _limit(resource.RLIMIT_CPU, (math.ceil(seconds) + 1) * (os.cpu_count() or 1))
    if "write" not in allow:
        _limit(resource.RLIMIT_FSIZE, 0)
    filter_gap = filter_function(allow)
    if filter_gap and "processes" not in allow:  # on Linux, it would refuse threads as well
        _limit(resource.RLIMIT_NPROC, 0)
    return [*gaps, *filter(None, (isolation_gap, filter_gap))]


def enter_host() -> list[str]:
    """Put the calling process under the limit of a verifier host."""
    return _limit_memory(WORKER_MEMORY)


def enter_generator() -> list[str]:
    """Put the calling process under the limits of a generator, before it starts a thread."""
    gaps = _limit_memory(WORKER_MEMORY)
    isolate()  # no gap where it fails: no text of a model gets here
    gap = _install(generator_filter)
    return [*gaps, gap] if gap else gaps


def verifier_gaps() -> str:
    """Return what this system does not enforce for verifiers; empty when everything holds."""
    return _gaps_in_child(lambda reply, other: enter_persistent_worker(reply, other, seconds=1))


def function_gaps(*, memory: int, seconds: float, allow: frozenset[str]) -> str:
    """Return what this system does not enforce for a contained function: see `verifier_gaps`."""
    # cached before the forks that need them: they take those longer than all else
    with contextlib.suppress(OSError):  # its child meets it as well
        _capabilities_over_files()
        landlock_rules(write="write" in allow)
    if _OWN in AUDIT:
        function_filter(_OWN, allow)
    return _gaps_in_child(
        lambda reply, _: enter_function_child(
            reply,
            memory=memory,
            seconds=seconds,
            allow=allow,
        )
    )


def _gaps_in_child(enter: Callable[[int, int], list[str]]) -> str:
    """Find out in a child, which enters limits with two descriptors."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        gaps = enter(write_end, read_end)
        os.write(write_end, " ".join(gaps).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as reply:
        gaps_text = reply.read().decode()
    _, status = os.waitpid(pid, 0)
    return f"a child that enters the limits ends with status {status}" if status else gaps_text
