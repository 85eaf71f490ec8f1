"""What is looked at before an environment is made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError, FixableError
from ..util.files import replacing


def require_usable(config: Any, server_configs: Any) -> None:
    """Refuse what Atropos's constructor would take for something else, or trip over.

    Raises:
        ConfigurationError: there is no server.
        UnwritableError: a place that is asked for can't be written to.
    """
    if isinstance(server_configs, list) and not server_configs:
        raise ConfigurationError("server_configs is empty: give the settings of a server")
    config.require_places()


def withhold_keys(folder: str | None) -> None:
    """Take the API key out of the configuration Atropos puts beside results one may publish.

    Raises:
        FixableError: the file can't be written to.
    """
    path = Path(folder or "", "evaluate_config.yaml")
    if folder is None or not path.exists():
        return
    try:
        text = re.sub(r"(\bapi_key:).*", r"\1 withheld", path.read_text())
        with replacing(path) as whole:
            whole.write_text(text)
    except OSError as error:
        raise FixableError(f"the API key can't be taken out of {path}: {error}") from error
