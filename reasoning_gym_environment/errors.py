"""Errors that several packages share.

A FixableError is what the user can put right: the command line prints it as one sentence. The
others are named after the boundary between processes that they crossed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

TRY_AGAIN = 75
"""Exit status where the same command may succeed later: EX_TEMPFAIL of sysexits.h."""


class FixableError(Exception):
    """Something in the user's hands is wrong; the message names the value and the way out.

    Attributes:
        exit_status: of a command that it ends.
    """

    exit_status: int = 2

    def reworded(self, message: str) -> FixableError:
        """The same error in other words, with the same exit status."""
        same = FixableError(message)
        same.exit_status = self.exit_status
        return same


class ConfigurationError(FixableError, ValueError):
    """A setting can't work."""


class WorkerStartError(FixableError):
    """A worker process did not come up."""


class WorkerLostError(RuntimeError):
    """A worker process died, or was killed at its deadline, with a request under way."""


class WorkerTimeoutError(WorkerLostError):
    """A worker process was killed at its deadline."""


class WorkerDiedError(WorkerLostError):
    """A worker process ended, and not by our hand."""


class GenerationError(RuntimeError):
    """A recipe could not be made into a problem."""


class GenerationTimeoutError(GenerationError):
    """A recipe's problem was not made within the deadline."""


class PoolClosedError(RuntimeError):
    """Work was asked of a task pool that is closed."""


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str, most: int = 3) -> str:
    """Say the way out for a name that does not exist: the closest ones that do.

    Args:
        otherwise: what is said where none is close.
        most: how many are named.

    Example:
        >>> did_you_mean("gdc", ["gcd", "lcm"], otherwise="see the docs")
        'did you mean gcd?'
    """
    close = difflib.get_close_matches(name, list(known), n=most)
    return f"did you mean {', '.join(close)}?" if close else otherwise
