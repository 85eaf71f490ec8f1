"""What every task's verifier pays for, and the proof of every ladder, found by asking both.

The tables of what is known to be paid are here; the guards themselves are in `scoring`.
"""
