"""Groups of rollouts, their metrics and accounting, and problems as demonstrations.

How completions are requested is in `inference`.
"""

__all__ = ["demonstrations", "metrics", "rollouts"]
