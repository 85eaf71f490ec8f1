"""The fixed evaluation set: a run, results on disk, metrics, comparisons, leaderboard.

Floors come from `tasks`; `report` makes pages of the results.
"""
