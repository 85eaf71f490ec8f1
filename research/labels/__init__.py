"""The labels' workshop: are reasoning-gym's labels true, and does another version differ?

Run it from the top of the repository: `python -m research.labels --help`.
"""
