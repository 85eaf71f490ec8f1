"""The tasks of reasoning-core, for `task_modules`: `pip install 'reasoning-core[gen]'`.

It registers them with reasoning-gym itself, without curricula: their levels are added here.
"""

import reasoning_core
from reasoning_gym.coaching import BaseCurriculum, ScalarAttributeDefinition
from reasoning_gym.factory import CURRICULA, DATASETS


class Levels(BaseCurriculum):
    """Levels 0 to 5, which the configuration of each of its tasks takes."""

    def __init__(self):
        super().__init__("reasoning_core", None)
        levels = ScalarAttributeDefinition(
            name="level", field_name="level", levels=[*range(6)]
        )
        self._define_attributes(levels)


def without_times(dataset):
    """Return a class whose entries are the same again: the library's say how long they took."""

    class Untimed(dataset):
        category = "reasoning_core"

        def __getitem__(self, index):
            entry = super().__getitem__(index)
            for name in ("_time", "elapsed"):
                entry["metadata"].pop(name, None)
            return entry

    return Untimed


reasoning_core.register_to_reasoning_gym(reasoning_core.list_tasks())
for name in reasoning_core.list_tasks():
    dataset, configuration = DATASETS[name]
    DATASETS[name] = (without_times(dataset), configuration)
    CURRICULA[name] = Levels
