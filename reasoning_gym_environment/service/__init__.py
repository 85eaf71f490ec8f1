"""The reward service: problems and scores over HTTP, for trainers in whatever language.

What to make and how to score it is the gym's. Nothing of Atropos is here.
"""
