"""Our own commands, one a file: each has `main(arguments) -> int`, the exit code."""
