"""The fixed evaluation set: a run, results on disk, metrics, comparisons, leaderboard.

Chance floors come from `tasks`; `report` makes pages of the results.
"""
