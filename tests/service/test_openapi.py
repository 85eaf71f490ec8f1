"""Replies conform to the OpenAPI document, whatever is sent."""

import asyncio
import json

import pytest
from hypothesis import HealthCheck, Phase, given, settings

pytest.importorskip("schemathesis", reason="needs the extra `nightly`")
import schemathesis
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.generation import GenerationMode

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.service.app import (
    RewardService,
    ServiceSettings,
    create_app,
)

pytestmark = pytest.mark.nightly

DOCUMENT = create_app(AsyncReasoningGym(processes=1), ServiceSettings()).openapi()
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = [
    (method, path, mode)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    for mode in GenerationMode
    # Without one, all is right.
    if "requestBody" in operation or mode is GenerationMode.POSITIVE
]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = 12
OF_PROBLEMS = 3
"""Examples for `/problems`: each may begin a stream, which makes problems ahead."""


def test_every_schema_has_a_description() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert [
        name for name, schema in schemas.items() if not schema.get("description")
    ] == []
    assert {"ScoreRequest", "ScoreReply", "NemoRequest", "ErrorReply"} <= schemas.keys()
    assert json.loads(json.dumps(DOCUMENT)) == DOCUMENT


def test_every_error_is_documented_as_json() -> None:
    errors = [
        reply
        for path in DOCUMENT["paths"].values()
        for operation in path.values()
        for status, reply in operation["responses"].items()
        if status >= "400"
    ]
    assert errors
    assert all([*reply["content"]] == ["application/json"] for reply in errors)


@pytest.mark.asyncio(loop_scope="session")
# Random versions are other ones.
@pytest.mark.filterwarnings("ignore:Recipes made with")
@pytest.mark.parametrize(("method", "path", "mode"), OPERATIONS)
async def test_replies_conform_to_the_openapi_document(
    service: RewardService, method: str, path: str, mode: GenerationMode
) -> None:
    operation = SCHEMA[path][method]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=OF_PROBLEMS if path == "/problems" else EXAMPLES,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=service.url, checks=CHECKS, timeout=120)

    await asyncio.to_thread(ask)
