"""Times of stored rows, as numbers and as words."""

from __future__ import annotations

from datetime import datetime, timezone

UNITS = (
    ("s", 1, 120),
    ("min", 60, 120),
    ("h", 3600, 48),
)
"""Units of a duration: name, seconds, and from how many on the next one is used."""

DAY_SECONDS = 86400


def seconds_of(time: str) -> float | None:
    """Return seconds since the epoch of an ISO 8601 time; None if it isn't one that UTC has.

    Example:
        >>> seconds_of("1970-01-01T00:01:00+00:00"), seconds_of("soon")
        (60.0, None)
    """
    try:
        # Python 3.10 reads no "Z".
        seconds = datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
        datetime.fromtimestamp(seconds, timezone.utc)  # `minute` has to say it
    except (ValueError, OverflowError, OSError):
        return None
    return seconds


def minute(seconds: float | None) -> str:
    """Return a time since the epoch to the minute.

    Example:
        >>> minute(60.0)
        '1970-01-01 00:01 UTC'
    """
    # Without its zone, which would be printed as +00:00.
    time = datetime.fromtimestamp(seconds or 0.0, timezone.utc).replace(tzinfo=None)
    return f"{time.isoformat(sep=' ', timespec='minutes')} UTC"


def lasting(seconds: float) -> str:
    """Return a duration in words.

    Example:
        >>> lasting(4.2), lasting(90), lasting(7200), lasting(400_000)
        ('4 s', '90 s', '2 h', '5 days')
    """
    for unit, unit_seconds, limit in UNITS:
        if seconds < limit * unit_seconds:
            # A row may have a later time than this machine's clock.
            count = max(0.0, seconds) / unit_seconds
            return f"{count:.0f} {unit}"
    return f"{seconds / DAY_SECONDS:.0f} days"
