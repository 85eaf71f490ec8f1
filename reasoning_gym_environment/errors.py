"""Errors that several packages share.

The command line prints a FixableError as one sentence. The others are named after the boundary
between processes that they crossed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

TRY_AGAIN = 75
"""Exit status if the same command may succeed later: EX_TEMPFAIL of sysexits.h."""

INCOMPLETE = 3
"""Exit status if the results lack a part, which the same command adds."""


class FixableError(Exception):
    """An error that the user can fix; the message names the value and what to do.

    Attributes:
        exit_status: exit status of the command.
    """

    exit_status: int = 2


class ConfigurationError(FixableError, ValueError):
    """An invalid setting."""


class Mistakes:
    """Mistakes that are told at once.

    Example:
        >>> mistakes = Mistakes()
        >>> for name in ("a", "b"):
        ...     with mistakes.collected():
        ...         raise ConfigurationError(f"{name} must be set")
        >>> mistakes.require_none()
        Traceback (most recent call last):
        reasoning_gym_environment.errors.ConfigurationError: 2 mistakes:
          a must be set
          b must be set
    """

    def __init__(self) -> None:
        self._errors: list[FixableError] = []

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._errors)

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep an error that the user can fix for `require_none`."""
        try:
            yield
        except FixableError as error:
            self._errors.append(error)

    def require_none(self) -> None:
        """Raise the only mistake, or ConfigurationError with the sentences of all."""
        # Two checks may find the same.
        by_sentence = {str(error): error for error in self._errors}
        if len(by_sentence) == 1:
            raise self._errors[0]
        if by_sentence:
            sentences = "".join(f"\n  {sentence}" for sentence in by_sentence)
            raise ConfigurationError(f"{len(by_sentence)} mistakes:{sentences}")


class WorkerStartError(FixableError):
    """A worker process that failed to start."""


class WorkerLostError(RuntimeError):
    """A worker process that died, or was killed at its deadline, during a request."""


class WorkerTimeoutError(WorkerLostError):
    """A worker process that was killed at its deadline."""


class WorkerDiedError(WorkerLostError):
    """A worker process that exited unexpectedly."""


class WorkerOutOfMemoryError(WorkerDiedError):
    """A worker process that ended because its memory was used up."""


class GenerationError(FixableError, RuntimeError):
    """A recipe from which no problem can be generated."""


class GenerationTimeoutError(GenerationError):
    """A problem that was not generated within the deadline."""


class NoQuestionsLeftError(GenerationError):
    """A level without a question that may be asked."""


class PoolClosedError(RuntimeError):
    """A request to a closed task pool."""


def did_you_mean(
    name: str,
    known_names: Iterable[str],
    *,
    otherwise: str,
    most: int = 3,
) -> str:
    """Return a hint for an unknown name: the closest known names.

    Args:
        otherwise: the hint if no name is close.
        most: how many names to suggest.

    Example:
        >>> did_you_mean("gdc", ["gcd", "lcm"], otherwise="see the docs")
        'did you mean gcd?'
    """
    close = difflib.get_close_matches(name, list(known_names), n=most)
    return f"did you mean {', '.join(close)}?" if close else otherwise
