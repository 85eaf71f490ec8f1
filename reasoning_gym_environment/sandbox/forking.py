"""The nursery process: imports the library once and forks the workers, generators and hosts.

It hears of nothing but roles and process ids, never of requests or model text. Its standard
input is the control socket; a request for a worker brings the worker's end of a socket pair.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import traceback
from types import ModuleType
from typing import NoReturn

from ..tasks.datasets import Datasets
from . import generator, verifier_host

_NICENESS = 5
"""The event loop that waits for workers must not wait for the processor because of them."""

_ROLES = {"generator": generator.run, "verifier": verifier_host.run}


def main() -> None:
    """Fork workers for the process at the other end of standard input, until it has gone."""
    os.nice(_NICENESS)
    control = socket.socket(fileno=os.dup(0))
    _to_null(0, 1)
    _import_automata()
    nursery = _Forks(control, Datasets())
    _freeze()
    while True:
        said, descriptors, *_ = socket.recv_fds(control, 4096, 1)
        if not said:
            nursery.end_all()
            return
        for line in said.decode().splitlines():
            match line.split():
                case ["end", pid]:
                    nursery.end(int(pid))
                case [role]:
                    nursery.fork(role, descriptors.pop())


def _import_automata() -> None:
    """Import cellpylib without what it draws with, which the library's import mostly waits for."""
    axes = ModuleType("mpl_toolkits.mplot3d")
    axes.Axes3D = object  # type: ignore[attr-defined]  # a module's attributes are not declared
    names = ("", ".pyplot", ".animation", ".collections")
    drawing = {f"matplotlib{name}": ModuleType(f"matplotlib{name}") for name in names}
    drawing |= {"mpl_toolkits": ModuleType("mpl_toolkits"), axes.__name__: axes}
    sys.modules.update(drawing)
    with contextlib.suppress(ImportError):  # of another version: the library imports it whole
        import cellpylib  # type: ignore[import-untyped]  # noqa: F401 - the library finds it imported
    for name in drawing:
        del sys.modules[name]


class _Forks:
    """The workers that were forked and not yet ended."""

    def __init__(self, control: socket.socket, datasets: Datasets) -> None:
        self._control = control
        self._datasets = datasets
        self._verifiers_warm = False
        self._children: set[int] = set()

    def fork(self, role: str, end: int) -> None:
        """Fork a worker at that descriptor; it tells its process id itself."""
        if role == "verifier" and not self._verifiers_warm:
            verifier_host.warm_up(self._datasets)
            _freeze()
            self._verifiers_warm = True
        try:
            pid = os.fork()
        except OSError as error:  # too many processes, or no memory: the others go on
            self._control.send(f"0 {error}".encode())
            os.close(end)
            return
        if pid == 0:
            self._work(role, end)
        os.close(end)
        self._children.add(pid)

    def _work(self, role: str, end: int) -> NoReturn:
        code = 1
        try:
            os.setsid()
            self._control.send(str(os.getpid()).encode())
            self._control.close()
            requests, replies = os.fdopen(end, "rb"), os.fdopen(os.dup(end), "wb")
            _ROLES[role](requests, replies, self._datasets)
            code = 0
        except BaseException:  # noqa: BLE001 - a fork ends here, whatever happened
            traceback.print_exc()
        finally:
            os._exit(code)

    def end(self, pid: int) -> None:
        """Kill a worker's session and bury it."""
        if pid in self._children:
            self._children.remove(pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: it is a zombie
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    def end_all(self) -> None:
        for pid in list(self._children):
            self.end(pid)


def _to_null(*descriptors: int) -> None:
    """The library prints: its output is nobody's protocol."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(null, descriptor)


def _freeze() -> None:
    """Keep what forks share out of collections, which would copy it."""
    gc.collect()
    gc.freeze()
