"""Requests to the reward service, and what comes back."""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from reasoning_gym_environment.records import Problem


class Reply(NamedTuple):
    """What came back: HTTP status, JSON, headers."""

    status: int
    body: Any
    headers: Any


Post = Callable[..., Awaitable[Reply]]
"""Posts JSON to a route of the service."""


async def require_rejections(post: Post, table: str, url: str = "") -> None:
    """Post what a table has; a case ends with a line `> ` and a part of the error.

    It begins with the status, the route, and JSON that may be broken at its spaces.
    """
    for case in re.findall(r"(.+?)\n> ([^\n]+)", table, re.DOTALL):
        status, route, body = " ".join(case[0].split("\n")).strip().split(" ", 2)
        reply = await post(route, json.loads(body), url=url)
        assert (reply.status, case[1] in reply.body["error"]) == (int(status), True), (
            case,
            reply,
        )


def right(problem: Problem) -> str:
    return f"<think>easy</think><answer>{problem.oracle}</answer>"


def spoken(text: str) -> dict[str, Any]:
    """A response as of OpenAI's API of that name, which NeMo Gym sends."""
    thought = {"type": "reasoning", "summary": [{"text": "<answer>0</answer>"}]}
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "role": "assistant", "content": [part]}
    return {"id": "r1", "object": "response", "output": [thought, message]}


def row(question: str, text: str, /, **fields: Any) -> dict[str, Any]:
    """A NeMo Gym row with the model's response."""
    asked = {"input": [{"role": "user", "content": question}]}
    return {"responses_create_params": asked, "response": spoken(text), **fields}


def raw_post(route: str, body: str, *, announced: int | None = None) -> bytes:
    """A request as its bytes; `announced` is a length other than the body's."""
    length = len(body.encode()) if announced is None else announced
    kind = "Content-Type: application/json"
    head = f"POST {route} HTTP/1.1\r\nHost: x\r\n{kind}\r\nContent-Length: {length}\r\n\r\n"
    return (head + body).encode()
