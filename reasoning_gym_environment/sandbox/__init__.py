"""Worker processes for all of reasoning-gym and for functions of users, and their containment.

Other packages use `pool` and `functions` alone. What a verifier may execute is decided in
`_screen`.
"""
