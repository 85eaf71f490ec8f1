"""What has nothing to do with the subject: grouping, terminals, progress, whole files, lifetime.

No module here knows what a rollout is.
"""
