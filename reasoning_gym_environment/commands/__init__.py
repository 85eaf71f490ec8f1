"""The commands without an inference server, one a module; each `main(arguments)` returns a status.

They parse options and print. The packages do the work.
"""

__all__ = [
    "compare",
    "demo",
    "export",
    "init",
    "openenv",
    "problems",
    "prove",
    "report",
    "rescore",
    "rewards",
    "show",
    "suite",
    "tasks",
    "watch",
]
