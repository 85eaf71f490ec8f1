"""Groups of rollouts, their metrics and accounting.

How completions are requested is in `inference`.
"""
