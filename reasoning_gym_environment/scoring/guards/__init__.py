"""Guards: the most that a degenerate answer may earn, by task."""

__all__ = ["registry"]
