"""A gym that never answers."""

import asyncio

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.records import Problem, Recipe


class Hung(AsyncReasoningGym):
    """Starts no process, and never scores."""

    def __init__(self) -> None:
        super().__init__(processes=1)
        self.asked = asyncio.Event()

    async def problem(self, recipe: Recipe) -> Problem:
        self.asked.set()
        return await asyncio.Future()
