"""Our own commands, one a file: each has `main(arguments) -> int`, the exit code.

What they compute is in the packages; Atropos's own commands are `cli`'s.
"""
