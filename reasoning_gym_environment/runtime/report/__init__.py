"""A page one wants to look at, from dumps and evaluation results.

rows (files) -> figures -> charts and tables (contents) -> page; samples are the texts beside.
"""
