"""A data set for SkyRL's trainer that a stream feeds, so that levels follow the rewards.

Return it from `get_train_dataset` of your `BasePPOExp`:

    return StreamedPrompts(self.cfg, size=100_000, complexity_mode="curriculum")

Set `data.dataloader.num_workers=0`: other processes have no stream.
"""

from skyrl.train.dataset.dataset import PromptDataset

from reasoning_gym_environment.integrations.shared import problem_row, shared_gym
from reasoning_gym_environment.integrations.skyrl import skyrl_row


class StreamedPrompts(PromptDataset):
    """The next problems of a stream, whatever their index.

    `cfg` is SkyRL's configuration, whose `generator.n_samples_per_prompt` is the stream's
    `group_size`. `size` is the length of an epoch; `options` are those of `ReasoningGym.stream`.
    """

    def __init__(self, cfg, size, **options):
        group_size = cfg.generator.n_samples_per_prompt
        self.stream = shared_gym().stream(group_size=group_size, **options)
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        problem = self.stream.next()
        row = skyrl_row(problem.recipe, problem_row(problem, "think")["prompt"])
        return row.pop("prompt"), row.pop("env_class"), row, str(index)
