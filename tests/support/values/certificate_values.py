"""Certificates of `prove --json`, held against the schema that the package ships."""

import json
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

PROOF = files("reasoning_gym_environment") / "proof"
SCHEMA = json.loads((PROOF / "certificate.schema.json").read_text(encoding="utf-8"))


def require_valid(certificate: dict[str, Any]) -> None:
    """Raise ValidationError unless the schema allows a certificate."""
    Draft202012Validator(SCHEMA).validate(certificate)
