"""The processes in which all of reasoning-gym runs, and what contains those that see model text.

What is asked of them, and what becomes of their verdicts, is decided elsewhere.
"""
