"""An OpenAI-compatible server that knows what to answer to which question."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web


class AnsweringServer:
    """Answers `/v1/chat/completions` on 127.0.0.1 while it is entered (`async with`).

    Args:
        replies: by question, as the last message has it.

    Attributes:
        url: of the API, with its version; set once it serves.
        asked: the messages of each request.
    """

    def __init__(self, replies: Mapping[str, str]) -> None:
        self._replies = replies
        self.url = ""
        self.asked: list[list[dict[str, Any]]] = []

    async def __aenter__(self) -> "AnsweringServer":
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body["messages"])
        reply = self._replies[text_of(body["messages"][-1])]
        if body.get("stream"):
            return await self._stream(request, reply)
        return web.json_response(self._object("message", reply))

    def _object(self, part: str, reply: str) -> dict[str, Any]:
        """A completion, whole (part "message") or the only chunk of a stream (part "delta")."""
        message = {"role": "assistant", "content": reply}
        return {
            "id": f"reply-{len(self.asked)}",
            "object": "chat.completion" + (".chunk" if part == "delta" else ""),
            "created": 0,
            "model": "simulated",
            "choices": [{"index": 0, part: message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }

    async def _stream(self, request: web.Request, reply: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in (json.dumps(self._object("delta", reply)), "[DONE]"):
            await response.write(f"data: {event}\n\n".encode())
        return response


def text_of(message: Mapping[str, Any]) -> str:
    """A message's text, whole or in parts."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


async def run(*command: str, cwd: Any, env: Mapping[str, str]) -> str:
    """Run a program to its end beside the server; it has to succeed.

    Returns:
        What it printed.
    """
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, env=env, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()
