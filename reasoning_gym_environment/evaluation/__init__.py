"""The fixed evaluation set: planned, run, kept, measured with intervals, compared with another run.

Chance floors come from `tasks`; pages for people to look at are made in `report`.
"""
