"""`evaluate --model A --model B`: the settings of each model, with a folder for its results."""

from __future__ import annotations

import re
import uuid
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import ConfigurationError
from ..evaluation.options import AmongModels, Price
from ..settings import MODEL, PRICE, RunFlags, Settings
from ..util.command_line import build, each_value


def settings_of_models(
    command: str, options: Namespace, settings: Settings
) -> list[Settings]:
    """Return the settings of each model that options name; one, unless `--model` is repeated.

    All models are asked the same items at the same servers.

    Args:
        settings: made from the options, with the last model and the last price.

    Raises:
        ConfigurationError: the command takes one model, one is named twice, or the number of
            prices is another.
    """
    models: Sequence[str] = each_value(options, MODEL)
    prices = each_value(options, PRICE)
    if command != "evaluate" and len(models) > 1:
        raise ConfigurationError(
            f"--model is given {len(models)} times ({', '.join(models)}): only `evaluate` takes "
            f"several models, `{command}` takes one"
        )
    if len(prices) not in (0, 1, max(1, len(models))):
        raise ConfigurationError(
            f"--price is given {len(prices)} times for {max(1, len(models))} models: give it once "
            "for all, or once for each in the order of --model"
        )
    if len(models) < 2:
        return [settings]
    if len(prices) < 2:
        prices = [settings.flags.price] * len(models)
    folder = Path(
        settings.env.data_dir_to_save_evals
        or f"{settings.env.data_dumps_dir}/evaluation_{uuid.uuid4()}"
    )
    folder_by_model = _folder_by_model(models, folder)
    flags_of_each = [
        build(RunFlags, {**dict(settings.flags), "price": price}) for price in prices
    ]
    checked_prices = [flags.price for flags in flags_of_each]
    among = AmongModels(
        folder=folder,
        prices=[None if price is None else Price(*price) for price in checked_prices],
    )
    settings_of_each = []
    for model, flags in zip(models, flags_of_each, strict=True):
        env = settings.env.model_copy()
        env.data_dir_to_save_evals = str(folder_by_model[model])
        servers = [
            server.model_copy(update={"model_name": model})
            for server in settings.servers
        ]
        settings_of_each.append(
            replace(settings, env=env, servers=servers, flags=flags, among=among)
        )
    return settings_of_each


def _folder_by_model(models: Sequence[str], folder: Path) -> dict[str, Path]:
    """Return each model's folder; raise ConfigurationError where two would share one."""
    folder_by_model: dict[str, Path] = {}
    for model in models:
        own_folder = folder / folder_name(model)
        if own_folder in folder_by_model.values():
            raise ConfigurationError(
                f"--model {model} would have the same folder as another --model, {own_folder}: "
                "leave it out, or evaluate it by a command of its own"
            )
        folder_by_model[model] = own_folder
    return folder_by_model


def folder_name(model: str) -> str:
    """Return a model's name as that of a folder.

    Example:
        >>> folder_name("openai/gpt-4o-mini"), folder_name("./tuned"), folder_name("..")
        ('openai_gpt-4o-mini', '_tuned', '_')
    """
    return re.sub(r"[^\w.-]+", "_", model).replace("..", "_").lstrip(".") or "_"
