"""Helpers that know nothing of the subject: files, text, concurrency, retries, logs, progress.

No module here knows what a rollout is.
"""
