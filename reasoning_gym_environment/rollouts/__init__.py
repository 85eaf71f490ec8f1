"""One group of rollouts: completions, grades, accounting and retries.

How completions are requested is in `inference`.
"""

__all__ = ["demonstrations", "metrics", "progress", "retries", "rollouts"]
