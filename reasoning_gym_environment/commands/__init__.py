"""The commands without an inference server, one a module; each `main(arguments)` returns a status.

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
    "show",
    "suite",
    "tasks",
    "watch",
]
