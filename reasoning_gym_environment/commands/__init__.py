"""The commands without an inference server, one a module; each `main(arguments)` returns a status.

They parse options and print. The packages do the work.
"""
