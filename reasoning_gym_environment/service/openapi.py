"""The service's OpenAPI description, made from its messages."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from . import messages
from .messages import ErrorReply, HealthReply

_REF = "#/components/schemas/{model}"


class _Route(NamedTuple):
    path: str
    about: str
    request: type[BaseModel]
    reply: type[BaseModel] | None


_POSTS = (
    _Route(
        "/score", "Score completions of one problem.", messages.ScoreRequest, messages.ScoreReply
    ),
    _Route("/verify", "NeMo Gym: score a response.", messages.VerifyRequest, messages.VerifyReply),
    _Route("/openrlhf", "OpenRLHF: rewards.", messages.OpenRlhfRequest, messages.OpenRlhfReply),
    _Route("/slime", "slime: a reward, as a number.", messages.SlimeRequest, None),
    _Route(
        "/problems",
        "The next problems of a stream.",
        messages.ProblemsRequest,
        messages.ProblemsReply,
    ),
    _Route("/observe", "Tell a stream of results.", messages.ObserveRequest, messages.ObserveReply),
)

_REFUSALS = {
    "400": "The body is no JSON.",
    "401": "The bearer token is missing or wrong.",
    "404": "There is no such stream, or it doesn't wait for this result.",
    "408": "The body has not arrived in time.",
    "409": "Streams are not kept here, all are in use, or this one has other options.",
    "413": "The body is too large.",
    "415": "The body is not application/json.",
    "422": "A field has a value that can't be; or an item can't be scored.",
    "429": "Too many answers or bytes wait: see Retry-After.",
    "503": "A score can't be had now: see Retry-After.",
}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


def _post(route: _Route) -> dict[str, Any]:
    reply = _ref(route.reply) if route.reply else TypeAdapter(messages.Share).json_schema()
    return {
        "summary": route.about,
        "requestBody": {"required": True, "content": _json(_ref(route.request))},
        "responses": {"200": {"description": "The answer.", "content": _json(reply)}, **_refused()},
    }


def _refused() -> dict[str, Any]:
    return {
        status: {"description": about, "content": _json(_ref(ErrorReply))}
        for status, about in _REFUSALS.items()
    }


def _get(about: str, content: dict[str, Any], *, others: dict[str, Any]) -> dict[str, Any]:
    return {
        "summary": about,
        "responses": {"200": {"description": "The answer.", "content": content}, **others},
    }


@cache
def description() -> dict[str, Any]:
    """Write the description, of OpenAPI 3.1."""
    health = _json(_ref(HealthReply))
    unauthorized = {"401": _refused()["401"]}
    models: list[type[BaseModel]] = [ErrorReply, HealthReply]
    for route in _POSTS:
        models += [route.request, *([route.reply] if route.reply else [])]
    _, schemas = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "reasoning-gym rewards",
            "version": version("reasoning-gym-environment"),
        },
        "security": [{}, {"bearer": []}],
        "paths": {
            **{route.path: {"post": _post(route)} for route in _POSTS},
            "/seed_session": {
                "post": _get(
                    "NeMo Gym: nothing to prepare.", _json({"type": "object"}), others=unauthorized
                )
            },
            "/health": {
                "get": _get(
                    "Whether worker processes are up.",
                    health,
                    others={"503": {"description": "They are not.", "content": health}},
                )
            },
            "/metrics": {
                "get": _get(
                    "Counts, for Prometheus.",
                    {"text/plain": {"schema": {"type": "string"}}},
                    others=unauthorized,
                )
            },
            "/openapi.json": {"get": _get("This.", _json({"type": "object"}), others=unauthorized)},
        },
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }
