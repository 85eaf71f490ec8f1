"""The trial of a chat template: what fails in a run is told at the start, with its line."""

import sys
import time
from typing import Any

import pytest
from transformers import AutoTokenizer

from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference.prompts import with_variables
from reasoning_gym_environment.inference.template_trial import require_working_template

LOOPS = (
    "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
    "{% endfor %}{% endfor %}{% endfor %}"
)
WITHOUT_CALLS = (
    "{% set text = 'x' * 99999 %}\n"
    "{% for a in text %}{% for b in text %}{% for c in text %}"
    "{% endfor %}{% endfor %}{% endfor %}"
)


@pytest.fixture(scope="module")
def own_tokenizer(tokenizer_folder: str) -> Any:
    return AutoTokenizer.from_pretrained(tokenizer_folder)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("\n{% include 'other' %}", "in line 2 (TypeError: no loader"),
        ("\n\n{{ 1/0 }}", "in line 3 (ZeroDivisionError: division by zero)"),
        ("{{ messages + 1 }}", "in line 1 (TypeError: "),
        ("{{ messages.first.role }}", "in line 1 ('list object' has no attribute"),
        ("\n{{ raise_exception('no system') }}", "in line 2 (no system)"),
        ("\n{% for %}", "in line 2 ("),
        (
            "{% macro more() %}\n{{ more() }}{% endmacro %}{{ more() }}",
            "in line 2 (RecursionError: ",
        ),
        ("{{ " + "(" * 5000 + ")" * 5000 + " }}", "(RecursionError: "),
        ("{{ 'x' * 10**14 }}", "in line 1 (MemoryError"),
        (LOOPS, "in line 1 (it takes more than 0.2 s)"),
        (WITHOUT_CALLS, "in line 2 (it takes more than 0.2 s)"),
        ("{{ '\\ud83d' }}", "it writes lone surrogates"),
    ],
)
def test_a_template_that_fails_is_told_with_its_line(
    template: str, said: str, own_tokenizer: Any
) -> None:
    own_tokenizer.chat_template = template
    tracing_before = sys.gettrace()
    begin = time.monotonic()
    with pytest.raises(ConfigurationError) as raised:
        require_working_template(own_tokenizer, "Think.", seconds=0.2)
    assert said in str(raised.value)
    assert "--env.chat_template" in str(raised.value)
    assert sys.gettrace() is tracing_before
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize("text", ["😀", "é", "a 'b' \"c\" \\", "\U0010ffff"])
def test_any_text_of_a_variable_is_rendered_as_it_is(
    text: str, own_tokenizer: Any
) -> None:
    own_tokenizer.chat_template = with_variables("{{ x }}", {"x": text})
    require_working_template(own_tokenizer, "Think.")
    rendered = own_tokenizer.apply_chat_template(
        [{"role": "user", "content": "."}], tokenize=False
    )
    assert rendered == text
    own_tokenizer.encode(rendered)


def test_a_lone_surrogate_in_a_variable_is_refused(own_tokenizer: Any) -> None:
    own_tokenizer.chat_template = with_variables("{{ x }}", {"x": "\ud83d"})
    with pytest.raises(ConfigurationError, match="lone surrogates"):
        require_working_template(own_tokenizer, "Think.")
