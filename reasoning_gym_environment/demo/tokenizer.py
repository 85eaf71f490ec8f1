"""A byte-level tokenizer that needs no download."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

PAD = "<|pad|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"

_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_CORPUS = """
Work through the problem before you answer. Put your reasoning between <think> and </think>.
After that, give your final answer once, between <answer> and </answer>. Your task is to find
the value of each number in the list below, given the following rules and an example of the
input and the output. How many steps are needed, and which of these are true or false? Please
return only the result, in the same format as the question asks for; do not write anything
else. system user assistant. If there is no solution, say so. Sort the words in the given
order, then count the letters that appear more than once. Solve for x: 2 * x + 10 = 100 - 25.
"""


def build_tokenizer(folder: Path) -> Path:
    """Save a tokenizer for `AutoTokenizer.from_pretrained(folder)` and return `folder`.

    It is a small BPE over bytes, the same on every call, that encodes any text without loss. Its
    chat template is ChatML, and `<|im_end|>` ends a turn.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        show_progress=False,
        special_tokens=[PAD, TURN_START, TURN_END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator([_CORPUS], trainer)
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers ships no types
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=TURN_END,
        additional_special_tokens=[TURN_START],
        chat_template=_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
    return folder
