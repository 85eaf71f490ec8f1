"""How other frameworks write a completion and read a reward: pure functions of their messages."""

from __future__ import annotations

from typing import Any

from ..gym.asynchronous import Score
from ..tasks.recipes import shorten
from .items import Item, RecipeItem, entry_item, label_item, recipe_item
from .messages import MOST_CHARACTERS, OpenRlhfRequest, VerifyRequest
from .refusals import Refusal, busy


def verify_item(request: VerifyRequest) -> Item:
    """Find what a NeMo Gym row wants scored: its recipe, else the entry that it is."""
    if request.recipe is not None:
        return recipe_item(request.recipe, question=request.question)
    if request.metadata is None:
        raise Refusal(
            422, "the row has neither a recipe nor reasoning-gym's question, answer and metadata"
        )
    return entry_item(
        {"question": request.question, "answer": request.answer, "metadata": request.metadata}
    )


def response_text(output: list[dict[str, Any]]) -> str:
    """Join what the assistant said in a response; its reasoning is left out.

    Raises:
        Refusal: a message's content is no text, or all of it is too long.
    """
    texts: list[str] = []
    for message in output:
        if message.get("type", "message") != "message":
            continue
        content = message.get("content", "")
        parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
        if not isinstance(parts, list):
            raise Refusal(422, f"response.output: a message's content is {shorten(content)}")
        for part in parts:
            if isinstance(part, dict) and part.get("type") == "output_text":
                text = part.get("text")
                if not isinstance(text, str):
                    raise Refusal(422, f"response.output: an output_text's text is {shorten(text)}")
                texts.append(text)
    joined = "".join(texts)
    if len(joined) > MOST_CHARACTERS:
        raise Refusal(
            422,
            f"response.output: String should have at most {MOST_CHARACTERS} characters; it is "
            f"{shorten(joined)}",
        )
    return joined


def task_of(item: Item) -> str:
    """Give an item's task."""
    if isinstance(item, RecipeItem):
        return item.recipe.task
    task: str = item.entry["metadata"]["source_dataset"]
    return task


def verify_reply(body: dict[str, Any], item: Item, score: Score) -> dict[str, Any]:
    """Write what NeMo Gym reads: the row again, and its reward; 0 and masked if unscored."""
    reward = score.score or 0.0
    return {
        **body,
        "reward": reward,
        "score": reward,
        "status": score.status.value,
        "detail": score.detail,
        "mask_sample": score.score is None,
        "extracted_answer": score.answer,
        "task_name": task_of(item),
    }


def openrlhf_pairs(request: OpenRlhfRequest) -> list[tuple[Item, str]]:
    """Part what the model wrote from what it was asked, and read the labels.

    Raises:
        Refusal: lists of different length, a query without its prompt, or no label.
    """
    count = len(request.query)
    for name, values in (("prompts", request.prompts), ("labels", request.labels)):
        if len(values) != count:
            raise Refusal(422, f"{name} has {len(values)} values where query has {count}")
    pairs = []
    for index, query in enumerate(request.query):
        prompt = request.prompts[index]
        _, found, completion = query.partition(prompt) if prompt else ("", "found", query)
        if not found:
            raise Refusal(
                422,
                f"query.{index} doesn't hold prompts.{index}, {shorten(prompt)}: what the model "
                "wrote can't be told from what it was asked",
            )
        pairs.append((label_item(request.labels[index], f"labels.{index}"), completion))
    return pairs


def reward_of(score: Score) -> float:
    """Give a score where the framework has no word for an unscored one.

    Raises:
        Refusal: it is unscored.
    """
    if score.score is None:
        raise busy(503, f"a completion can't be scored now, which is worth no 0: {score.detail}")
    return score.score
