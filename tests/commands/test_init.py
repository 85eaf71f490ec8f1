"""`init` writes configurations that work as they are."""

from pathlib import Path

import pytest
from command_settings import checked

from reasoning_gym_environment.commands.init import ENGINES, FOLDER, main
from reasoning_gym_environment.errors import FixableError


@pytest.mark.parametrize("engine", ENGINES)
def test_each_configuration_is_read_as_it_is(engine: str, tmp_path: Path) -> None:
    file = tmp_path / "new" / "mine.yaml"
    assert main([engine, "-o", str(file)]) == 0
    settings = checked("process", "--config", str(file))
    assert len(settings.env.dumped_kinds) == 3
    kind = engine if engine in ("vllm", "sglang") else "openai"
    assert {server.server_type for server in settings.servers} == {kind}
    assert not any(server.api_key for server in settings.servers)
    with pytest.raises(FixableError, match="exists; --force replaces it"):
        main([engine, "-o", str(file)])
    assert main([engine, "-o", str(file), "--force"]) == 0


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_what_a_reader_without_wandb_and_hub_needs_is_a_comment(
    engine: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    text = (FOLDER / f"{engine}.yaml").read_text(encoding="utf-8")
    for name in ("use_wandb", "tokenizer_name"):
        assert f"  # {name}: " in text
        text = text.replace(f"  # {name}: ", f"  {name}: ")
    file.write_text(text)
    settings = checked("process", "--config", str(file))
    assert settings.env.use_wandb is False
    assert settings.env.tokenizer_name == "FOLDER"


def test_it_is_printed_where_no_file_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["vllm"]) == 0
    assert capsys.readouterr().out == (FOLDER / "vllm.yaml").read_text()


def test_every_configuration_can_be_asked_for() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(ENGINES)


def test_without_an_engine_all_are_listed() -> None:
    with pytest.raises(FixableError) as raised:
        main([])
    _, *lines = str(raised.value).splitlines()
    assert [line.split()[0] for line in lines] == list(ENGINES)
