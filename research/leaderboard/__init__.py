"""The leaderboard of docs/leaderboard.md: published answers imported, standings and their page.

Run it from the top of the repository: `python -m research.leaderboard --help`.
"""
