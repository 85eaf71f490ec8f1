"""Groups of rollouts, their metrics and accounting, and problems as demonstrations."""

__all__ = ["demonstrations", "metrics", "rollouts"]
