"""What the page about evaluation says of the defaults."""

from page_blocks import ROOT

from reasoning_gym_environment.settings import EnvironmentSettings
from reasoning_gym_environment.tasks.catalogue import bundled_snapshot, select_tasks


def test_the_page_begins_with_the_default_evaluation() -> None:
    settings = EnvironmentSettings()
    snapshot = bundled_snapshot()
    assert snapshot is not None
    selected = select_tasks(
        snapshot.discovery,
        include=settings.include_tasks,
        exclude=settings.exclude_tasks,
    )
    tasks = sum(task.used for task in selected)
    each = settings.num_eval_samples_per_task
    page = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
    beginning = page.partition("```")[0]
    for said in (
        f"{tasks * each}: {each} of each of {tasks} tasks",
        f"temperature {settings.eval_temperature:g}",
        f"system prompt `{settings.system_prompt}`",
        f"at most {settings.max_token_length} of prompt and completion",
    ):
        assert said in beginning
    assert settings.eval_attempts == 1
    assert settings.eval_difficulties == []
