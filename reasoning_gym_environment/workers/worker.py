"""The entry of the worker processes: `worker.main("generator")` or `worker.main("verifier")`.

The pipes to the parent move away from the standard descriptors before the library is
imported: it prints, and its output is not the protocol's.
"""

from __future__ import annotations

import os
import sys

_NICENESS = 5
"""The event loop that waits for workers must not wait for the processor because of them."""


def main(role: str) -> None:
    """Serve requests from standard input, on what was standard output, until it closes."""
    os.nice(_NICENESS)
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    if role == "generator":
        from .generator import run
    else:
        from .verifier_host import run
    run(requests, replies)


if __name__ == "__main__":
    main(sys.argv[1])
