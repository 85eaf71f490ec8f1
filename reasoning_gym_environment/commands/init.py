"""`init`: a commented configuration to start from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigurationError
from ..util.command_line import Parser
from ..util.files import require_free, write_whole

FOLDER = Path(__file__).parents[1] / "configs"
ENGINES = {
    "vllm": "stock `vllm serve`",
    "sglang": "SGLang's server",
    "openai": "OpenAI's API",
    "openrouter": "another hosted endpoint",
    "ollama": "Ollama",
    "llama-cpp": "llama.cpp's server, or its Python package's",
}


def main(arguments: Sequence[str]) -> int:
    """Print the configuration or write it to a file."""
    parser = Parser(
        "init",
        "Write a commented configuration to start from.",
        epilog="For example: reasoning-gym-environment init vllm -o vllm.yaml",
    )
    engines = "; ".join(f"{name}: {about}" for name, about in ENGINES.items())
    parser.option("engine", engines, choices=ENGINES, metavar="ENGINE", nargs="?")
    parser.option(
        "-o/--output",
        "file to write (default: print it)",
        metavar="FILE.yaml",
        type=Path,
    )
    parser.flag("--force", "replace an existing file")
    options = parser.parse(arguments)
    if options.engine is None:
        lines = "".join(f"\n  {name:10} {about}" for name, about in ENGINES.items())
        raise ConfigurationError(f"missing ENGINE, the inference server; one of{lines}")
    text = (FOLDER / f"{options.engine}.yaml").read_text(encoding="utf-8")
    if options.output is None:
        print(text, end="")
        return 0
    require_free(options.output, force=options.force)
    write_whole(options.output, text)
    print(f"Wrote {options.output}; set the model and the servers in it")
    return 0
