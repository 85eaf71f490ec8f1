"""Worker processes for all of reasoning-gym and for functions of users, and their containment.

    this process
    └ fork server            imports the library once, then forks in milliseconds
      ├ generator            makes problems
      └ verifier host        takes answers to score; meets none of them itself
        ├ zygote             for one problem: scores the oracle, so that all caches are warm
        │ └ single-use child   scores one answer and ends
        └ persistent worker  scores the answers of a task whose verifier keeps no state

A function of a user has a fork server of its own, a host, and one child for each call. Children and
persistent workers are limited before they see a text of a model.

Other packages use `pool`, `worker_groups` and `functions` alone. What a verifier may execute is
decided in `_screen`.
"""
