"""What the user can put right: the command line prints these as one sentence."""

from __future__ import annotations


class FixableError(Exception):
    """Something in the user's hands is wrong; the message names the value and the way out."""


class ConfigurationError(FixableError, ValueError):
    """A setting can't work."""
