"""A page to look at, made from dumps and evaluation results, that needs nothing else.

Figures are computed here from stored groups; nothing is scored or sampled.
"""
