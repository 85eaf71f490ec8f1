"""A data set for SkyRL's trainer that a stream feeds, so that levels follow the rewards.

Return it from `get_train_dataset` of your `BasePPOExp`:

    size = self.cfg.generator.n_samples_per_prompt
    stream = shared_gym().stream(complexity_mode="curriculum", group_size=size)
    return StreamedPrompts(stream, size=100_000)

Set `data.dataloader.num_workers=0`: other processes have no stream.
"""

from skyrl.train.dataset.dataset import PromptDataset

from reasoning_gym_environment.integrations.shared import problem_row
from reasoning_gym_environment.integrations.skyrl import skyrl_row


class StreamedPrompts(PromptDataset):
    """The next problems of a stream, whatever their index; `size` is the length of an epoch."""

    def __init__(self, stream, size):
        self.stream, self.size = stream, size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        problem = self.stream.next()
        row = skyrl_row(problem.recipe, problem_row(problem, "think")["prompt"])
        return row.pop("prompt"), row.pop("env_class"), row, str(index)
