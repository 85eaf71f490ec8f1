"""Solvers that read nothing but the text of a question.

They share no code with the library, nor with the item checks, so that they can prove both wrong.
"""

__all__ = [
    "algebra",
    "algorithmic",
    "arithmetic",
    "cognition",
    "games",
    "graphs",
    "logic",
    "puzzles",
    "registry",
    "solution",
    "strings",
]
