"""System prompts, and the messages of one problem."""

from __future__ import annotations

from types import MappingProxyType

SYSTEM_PROMPTS = MappingProxyType(
    {
        "think": (
            "Work through the problem before you answer. Put your reasoning between <think> and "
            "</think>. After that, give your final answer once, between <answer> and </answer>. "
            "Write nothing inside the answer tags but the answer itself, in exactly the form the "
            "problem asks for. A reply with no answer, or with more than one, counts as wrong."
        ),
        "direct": (
            "Solve the problem. Give your final answer once, between <answer> and </answer>. "
            "Write nothing inside the answer tags but the answer itself, in exactly the form the "
            "problem asks for. A reply with no answer, or with more than one, counts as wrong."
        ),
    }
)
"""Built-in system prompts by name. `direct` suits models that think by themselves."""


def resolve_system_prompt(name_or_text: str) -> str:
    """The built-in prompt of that name, or the text itself.

    Example:
        >>> resolve_system_prompt("Be brief.")
        'Be brief.'
    """
    return SYSTEM_PROMPTS.get(name_or_text, name_or_text)


def build_messages(system_prompt: str, question: str) -> list[dict[str, str]]:
    """The chat messages that open one rollout; an empty system prompt sends none."""
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    return [*system, {"role": "user", "content": question}]
