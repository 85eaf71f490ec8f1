"""Worker processes for all of reasoning-gym, and the containment of those that see model text.

Other packages use `pool` alone. What a verifier may execute is decided in `_screen`.
"""

__all__ = ["pool"]
