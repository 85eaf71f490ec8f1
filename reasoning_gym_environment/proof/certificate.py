"""The certificates that `prove --json` prints, and their JSON Schema."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from ..scoring.extraction import AnswerFormat
from .checks import Result
from .endpoint_proof import EndpointResult
from .proving import Proofs, installed_versions
from .rows import CheckedRows, RowFinding, Unchecked

SchemaVersion = Literal[1]
"""Rises when a field goes or changes its meaning. Fields may be added without."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskCertificate:
    """The proofs of tasks.

    Attributes:
        versions: of reasoning-gym and of this package, and the digest of each task module.
        answer_format: in which answers were given.
        tasks: the proof of each task, by its name.
    """

    schema_version: SchemaVersion = 1
    versions: dict[str, str]
    answer_format: AnswerFormat
    tasks: dict[str, Result]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowCertificate:
    """What is known of the rows of a file.

    Attributes:
        versions: of reasoning-gym and of this package.
        rows: how many the file has.
        findings: what is wrong with rows.
        not_checked: rows whose answer nothing else confirms.
    """

    schema_version: SchemaVersion = 1
    versions: dict[str, str]
    rows: int
    findings: Sequence[RowFinding]
    not_checked: Sequence[Unchecked]


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointCertificate:
    """What a scoring endpoint pays for.

    Attributes:
        versions: of reasoning-gym and of this package.
        endpoint: its proof.
    """

    schema_version: SchemaVersion = 1
    versions: dict[str, str]
    endpoint: EndpointResult


Certificate = TaskCertificate | RowCertificate | EndpointCertificate
KINDS = (TaskCertificate, RowCertificate, EndpointCertificate)


def of_tasks(proofs: Proofs) -> TaskCertificate:
    """Return the certificate of proofs, without what has been drawn so far."""
    return TaskCertificate(
        versions=proofs.versions,
        answer_format=proofs.answer_format,
        tasks=proofs.tasks,
    )


def of_rows(checked: CheckedRows) -> RowCertificate:
    """Return the certificate of rows."""
    return RowCertificate(
        versions=installed_versions(),
        rows=checked.rows,
        findings=checked.findings,
        not_checked=checked.unchecked,
    )


def of_endpoint(result: EndpointResult) -> EndpointCertificate:
    """Return the certificate of an endpoint."""
    return EndpointCertificate(versions=installed_versions(), endpoint=result)


def as_json(certificate: Certificate) -> str:
    """Return a certificate as JSON."""
    return json.dumps(msgspec.to_builtins(certificate), indent=1)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of all certificates."""
    references, definitions = msgspec.json.schema_components(
        KINDS, ref_template="#/$defs/{name}"
    )
    for definition in definitions.values():
        definition["description"] = inspect.cleandoc(definition["description"])
        # What has a default is written too.
        definition["required"] = list(definition["properties"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Certificate of `reasoning-gym-environment prove --json`",
        "anyOf": list(references),
        "$defs": definitions,
    }
