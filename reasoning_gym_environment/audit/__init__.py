"""The audit: what every task's verifier pays for, floors without reasoning, proof of the ladders.

`findings` lists the expected findings; the guards are in `scoring`.
"""

__all__ = ["findings", "ladder_proof", "pages", "run"]
