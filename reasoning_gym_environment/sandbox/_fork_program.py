"""The program of a fork server: it prepares roles, and forks and kills their workers.

`main` is that for reasoning-gym. It learns roles and process ids, never requests or model text.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import BinaryIO, NoReturn

import msgspec

from ..errors import (
    WorkerStartError,
)
from ..util.modules import ModuleSource
from ._fork_server import URGENT, ForkServer, _kill_session
from ._limits import keep_shared_memory_private, protect_process

Serve = Callable[[BinaryIO, BinaryIO], None]
"""Serves a role: reads requests and writes replies."""


Roles = Mapping[str, Callable[[], Serve]]
"""For each role what prepares the server process for it, before its first worker is forked."""


def main() -> None:
    """Run the server process for workers of reasoning-gym, or of the module in its argument."""
    run_server(_task_roles)


def _task_roles() -> Roles:
    # The event loop's process loads none of these.
    from ..tasks.datasets import Datasets
    from ..tasks.library import import_library
    from ..tasks.modules import load_module
    from . import _generator as generator
    from . import _verifier_host as verifier_host

    _import_cellpylib()
    import_library()
    module = None
    if len(sys.argv) > 1:
        module = load_module(msgspec.json.decode(sys.argv[1], type=ModuleSource))
        keep_shared_memory_private()
    datasets = Datasets(own_tasks=module.categories if module else ())

    def verifier() -> Serve:
        if module is None:
            verifier_host.warm_up(datasets)
        else:
            verifier_host.import_for_verifiers(datasets, module.categories)
        return partial(verifier_host.run, datasets=datasets, module=module)

    generate = partial(generator.run, datasets=datasets, module=module)
    return {"generator": lambda: generate, "verifier": verifier}


def run_server(load_roles: Callable[[], Roles]) -> None:
    """Run a server process until the process at the other end of standard input has gone.

    Standard input is the control socket. A message is a role, with `urgent` or without, with the
    worker's end of a socket pair; or `kill` and a process id.
    """
    ForkServer.in_worker = True
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    control = socket.socket(fileno=os.dup(0))
    protect_process()  # its forks can't be traced either, and an import may hang
    hung_up = select.poll()
    hung_up.register(control, 0)
    if hung_up.poll(0):  # the parent has gone before
        return
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1):  # libraries print
        os.dup2(null, standard)
    try:
        workers = _Workers(control, load_roles())
    except WorkerStartError as error:
        control.send(f"0 {error}".encode(errors="replace")[:1000])
        return
    _freeze()
    while True:
        message, descriptors, *_ = socket.recv_fds(control, 4096, 1)
        if not message:
            workers.kill_all()
            return
        for line in message.decode().splitlines():
            match line.split():
                case ["kill", pid]:
                    workers.kill(int(pid))
                case [role, *rest]:
                    workers.fork(role, descriptors.pop(), is_urgent=rest == [URGENT])


def _import_cellpylib() -> None:
    """Import cellpylib without its plotting, which takes most of the library's import time."""
    axes = ModuleType("mpl_toolkits.mplot3d")
    axes.Axes3D = object  # type: ignore[attr-defined]  # a module's attributes are not declared
    names = ("", ".pyplot", ".animation", ".collections")
    plotting = {f"matplotlib{name}": ModuleType(f"matplotlib{name}") for name in names}
    plotting |= {"mpl_toolkits": ModuleType("mpl_toolkits"), axes.__name__: axes}
    sys.modules.update(plotting)
    # Another version may need the plotting: then the library imports it whole.
    with contextlib.suppress(ImportError):
        import cellpylib  # type: ignore[import-untyped]  # noqa: F401 - the library finds it imported
    for name in plotting:
        del sys.modules[name]


def _freeze() -> None:
    """Keep shared memory out of garbage collections, which would copy it."""
    gc.collect()
    gc.freeze()


class _Workers:
    """The living workers of the server process."""

    def __init__(self, control: socket.socket, roles: Roles) -> None:
        self._control = control
        self._roles = roles
        self._prepared: dict[str, Serve] = {}
        self._pids: set[int] = set()

    def fork(self, role: str, worker_end: int, *, is_urgent: bool) -> None:
        """Fork a worker that serves at that descriptor. It sends its process id itself."""
        try:
            if role not in self._prepared:
                self._prepared[role] = self._roles[role]()
                _freeze()
            pid = os.fork()
        except (OSError, WorkerStartError) as error:
            # Too many processes, no memory, or nothing to serve: the others go on.
            self._control.send(f"0 {error}".encode(errors="replace")[:1000])
            os.close(worker_end)
            return
        if pid == 0:
            if not is_urgent:
                # The event loop must not wait for the processor because of its workers.
                os.nice(5)
            self._serve(role, worker_end)
        os.close(worker_end)
        self._pids.add(pid)

    def _serve(self, role: str, worker_end: int) -> NoReturn:
        code = 1
        try:
            os.setsid()
            self._control.send(str(os.getpid()).encode())
            self._control.close()
            requests = os.fdopen(worker_end, "rb")
            replies = os.fdopen(os.dup(worker_end), "wb")
            self._prepared[role](requests, replies)
            code = 0
        except BaseException:  # noqa: BLE001 - a fork ends here, whatever happened
            traceback.print_exc()
        finally:
            os._exit(code)

    def kill(self, pid: int) -> None:
        """Kill a worker's session and reap it."""
        if pid in self._pids:
            self._pids.remove(pid)
            _kill_session(pid)
            os.waitpid(pid, 0)

    def kill_all(self) -> None:
        for pid in list(self._pids):
            self.kill(pid)
