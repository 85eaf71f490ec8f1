"""The audit: what every task's verifier pays for, floors without reasoning, proof of the ladders.

The expected findings are in `findings`; the guards are in `scoring`.
"""
