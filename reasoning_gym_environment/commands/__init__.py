"""The commands, one a module; `main(arguments)` of each returns the exit code.

They parse options and print. The packages do the work.
"""

__all__ = [
    "audit",
    "compare",
    "demo",
    "export",
    "init",
    "openenv",
    "problems",
    "report",
    "rescore",
    "rewards",
    "run",
    "show",
    "suite",
    "tasks",
    "watch",
]
