"""The proof of tasks: reproducible, solvable, what is paid, contained, levels, bounds.

`findings` lists what is known of the library's tasks; the guards are in `scoring`.
"""
