"""Endpoints without a tokenizer, keys, thoughts in a field of their own, base models."""

import asyncio
import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from command_settings import checked
from scripted_server import ScriptedServer
from transformers import AutoTokenizer

from reasoning_gym_environment import ReasoningGymEnv
from reasoning_gym_environment.demo.policy import Policy, ScriptedPolicy
from reasoning_gym_environment.demo.server import TURN_END, Generation, PolicyServer
from reasoning_gym_environment.demo.trainer import ApiServer
from reasoning_gym_environment.errors import ConfigurationError
from reasoning_gym_environment.inference.early_check import require_served
from reasoning_gym_environment.inference.errors import InferenceError
from reasoning_gym_environment.storage.dumps import read_dump

KEY = "sk-from-the-environment"
VARIABLE = ["--openai.api_key_var", "ANOTHER_KEY"]
TEXT = "<think>é 日本</think><answer>1</answer>"
ONE = ScriptedPolicy([TEXT])
PROMPT_TOKENS, COMPLETION_TOKENS = 31, 17


class HostedServer(PolicyServer):
    """Wants a key and counts tokens, if told so.

    Attributes:
        said: the Authorization header of each request.
        key: without it requests are refused.
        counts: whether replies have `usage`.
        refuses: the name of a parameter.
    """

    def __init__(self, policy: Policy, tokenizer: Any) -> None:
        super().__init__(policy, tokenizer)
        self.said: list[str | None] = []
        self.key = ""
        self.counts = True
        self.refuses = ""

    async def _chat(self, request: web.Request) -> web.Response:
        self.said.append(request.headers.get("Authorization"))
        if self.key and self.said[-1] != f"Bearer {self.key}":
            raise web.HTTPUnauthorized(text=f"Incorrect API key: {self.said[-1]}")
        if self.refuses in await request.json():
            raise web.HTTPBadRequest(text=f"Unsupported parameter: '{self.refuses}'")
        return await super()._chat(request)

    def _chat_reply(
        self, body: dict[str, Any], generations: Sequence[Generation]
    ) -> dict[str, Any]:
        reply = super()._chat_reply(body, generations)
        own = COMPLETION_TOKENS * len(generations)
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": own}
        return {**reply, "usage": usage} if self.counts else reply


def rollouts_of(folder: Path, pattern: str) -> list[dict[str, Any]]:
    """The rollouts of all rows in a folder's files."""
    rows = [row for file in folder.rglob(pattern) for row in read_dump(file).rows]
    return [rollout for row in rows for rollout in row["rollouts"]]


@pytest.mark.parametrize("counts", [True, False])
async def test_evaluate_needs_no_tokenizer(
    *, counts: bool, bench: Any, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    folder = bench.folder / "evaluation"
    settings = {
        "tokenizer_name": "",
        "eval_attempts": 2,
        "data_dir_to_save_evals": str(folder),
    }
    async with HostedServer(ONE, tokenizer) as server:
        server.counts = counts
        async with bench.unprepared(server.url, **settings) as env:
            await env._run_evaluate()
    rollouts = rollouts_of(folder, "samples.jsonl")
    prompt, own = PROMPT_TOKENS, COMPLETION_TOKENS
    if not counts:
        conversation = rollouts[0]["conversation"]
        prompt, own = (
            sum(len(message["content"]) for message in conversation[:-1]),
            len(TEXT),
        )
    assert [rollout["conversation"][-1]["content"] for rollout in rollouts] == [
        TEXT
    ] * 2
    assert {(r["tokens"], r["completion_tokens"]) for r in rollouts} == {
        (prompt + own, own)
    }
    metrics = json.loads((folder / "metrics.json").read_text())["results"]["all"]
    assert metrics["eval/completion_tokens"] == own
    said = "reports no usage: lengths are in characters, not in tokens"
    assert caplog.text.count(said) == (0 if counts else 1)


async def test_process_needs_no_tokenizer(bench: Any, tokenizer: Any) -> None:
    settings = {
        "tokenizer_name": "",
        "dump_all_rollouts": True,
        "include_messages": True,
    }
    async with (
        HostedServer(ONE, tokenizer) as server,
        bench.unprepared(
            server.url, ensure_scores_are_not_same=False, **settings
        ) as env,
    ):
        env.n_groups_to_process = 2
        await env.process_manager()
    rollouts = rollouts_of(bench.folder / "dumps", "*.jsonl")
    assert len(rollouts) == 8
    assert {rollout["completion_tokens"] for rollout in rollouts} == {COMPLETION_TOKENS}
    assert env.statistics.counts["groups/written"] == 2


async def test_what_needs_tokens_says_that_it_needs_a_tokenizer(bench: Any) -> None:
    groups = bench.folder / "g.jsonl"
    saves = {"data_path_to_save_groups": str(groups), "total_steps": 1}
    for run, settings, what in (
        (ReasoningGymEnv.env_manager, {}, "serve trains on tokens"),
        (
            ReasoningGymEnv.process_manager,
            saves,
            "data_path_to_save_groups stores tokens",
        ),
    ):
        settings = {"tokenizer_name": "", **settings}
        async with bench.unprepared("http://127.0.0.1:1", **settings) as env:
            with pytest.raises(ConfigurationError) as raised:
                await run(env)
        assert str(raised.value) == (
            f"{what}, so it needs the model's tokenizer: set --env.tokenizer_name"
        )
        assert not groups.exists()


async def test_a_tokenizer_is_that_of_the_model_where_prompts_are_tokens(
    bench: Any,
) -> None:
    async with bench.playing(ONE, "vllm", tokenizer_name="") as env:
        group, _ = await env.collect_trajectories(await env.get_next_item())
    assert env.config.tokenizer_name == env.inference.model
    assert len(group["inference_logprobs"]) == 4


async def test_a_refused_temperature_is_not_stored_as_if_it_were_used(
    bench: Any, tokenizer: Any
) -> None:
    folder = bench.folder / "evaluation"
    settings = {"tokenizer_name": "", "data_dir_to_save_evals": str(folder)}
    async with HostedServer(ONE, tokenizer) as server:
        server.refuses = "temperature"
        async with bench.unprepared(server.url, **settings) as env:
            await env._run_evaluate()
    stored = json.loads((folder / "metrics.json").read_text())["config_general"]
    assert stored["generation_parameters"]["temperature"] is None
    run = json.loads((folder / "run.json").read_text())
    assert run["settings"]["eval_temperature"] is None


def without_key(options: list[str]) -> list[str]:
    at = options.index("--openai.api_key")
    return [*options[:at], *options[at + 2 :]]


async def test_the_key_is_read_from_the_environment_and_shown_nowhere(
    bench: Any, tokenizer: Any
) -> None:
    settings = {
        "tokenizer_name": "",
        "data_dir_to_save_evals": bench.folder / "evaluation",
    }
    async with HostedServer(ONE, tokenizer) as server:
        server.key = KEY
        options = [*without_key(bench.options(server.url, **settings)), *VARIABLE]
        running = bench.command("evaluate", *options)
        running.environment |= {"ANOTHER_KEY": KEY}
        async with running:
            seen = set[bytes]()
            while running.process.returncode is None:
                seen |= command_lines()
                await asyncio.sleep(0.1)
            assert running.process.returncode == 0, running.said()
    assert {*server.said} <= {f"Bearer {KEY}", None}
    written = [file.read_bytes() for file in bench.folder.rglob("*") if file.is_file()]
    assert len(written) > 4
    assert not any(KEY.encode() in content for content in [*written, *seen])


@pytest.mark.nightly
async def test_a_refused_key_is_the_commands_last_line_and_withheld(
    bench: Any, tokenizer: Any
) -> None:
    """However it is given, and though the server quotes it."""
    async with HostedServer(ONE, tokenizer) as server, ApiServer() as api:
        server.key = "another"
        options = without_key(bench.options(server.url, rollout_server_url=api.url))
        saves = ["--env.data_path_to_save_groups", "groups.jsonl"]
        for command, given, variable in (
            ("serve", ["--openai.api_key", KEY], ""),
            ("process", [*VARIABLE, *saves], "ANOTHER_KEY"),
            ("evaluate", [], "OPENAI_API_KEY"),
        ):
            running = bench.command(command, *options, *given)
            running.environment |= {variable: KEY} if variable else {}
            async with running:
                assert await running.exit_code() == 2, running.said()
            *before, last = running.said().splitlines()
            assert last == (
                f"error: the inference server at {server.url}/v1 refuses requests with status 401 "
                "(Incorrect API key: Bearer withheld): set OPENAI_API_KEY or --openai.api_key to a "
                "key that the server accepts"
            )
            for text in (KEY, "Groups: ", "Counts "):
                assert not any(text in line for line in before)
    written = [file for file in bench.folder.rglob("*") if file.is_file()]
    assert not any(KEY.encode() in file.read_bytes() for file in written)


def command_lines() -> set[bytes]:
    """The command lines of all processes."""
    found = set[bytes]()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found.add(file.read_bytes())
    return found


async def test_a_variable_that_is_not_set_is_named() -> None:
    settings = checked("evaluate", *VARIABLE, "--openai.base_url", "http://127.0.0.1:1")
    with pytest.raises(ConfigurationError) as raised:
        await require_served(settings.servers, length_limit=100)
    assert str(raised.value) == (
        "--openai.api_key_var names the environment variable ANOTHER_KEY, which is not set: set it "
        "to the server's API key"
    )


async def test_training_sees_the_sampled_tokens_of_a_thought_in_a_field_of_its_own(
    bench: Any, tokenizer: Any
) -> None:
    """As vLLM with a reasoning parser: the ids are those of the whole completion."""
    async with (
        ScriptedServer(
            ONE, tokenizer, splits_reasoning=True, chat_tokens=True
        ) as server,
        bench.environment(server.url, include_messages=True) as env,
    ):
        group, _ = await env.collect_trajectories(await env.get_next_item())
    for masks in group["masks"]:
        assert tokenizer.decode([m for m in masks if m != -100]) == TEXT + TURN_END
    assert {messages[-1]["content"] for messages in group["messages"]} == {TEXT}


async def test_a_thought_that_comes_apart_later_is_lost_for_training(
    bench: Any, tokenizer: Any
) -> None:
    async with (
        ScriptedServer(ONE, tokenizer, splits_reasoning=True) as server,
        bench.environment(server.url) as env,
    ):
        problem = await env.get_next_item()
        with pytest.raises(InferenceError) as raised:
            await env.collect_trajectories(problem)
        assert not raised.value.is_transient
        assert not await env.run.groups.work_on(problem)
    counts = env.statistics.counts
    assert (counts["groups/lost"], counts["problems/given_up"]) == (1, 1)


@pytest.fixture
def base_folder(tokenizer_folder: str, tmp_path: Path) -> str:
    """A tokenizer without a chat template, as those of base models."""
    folder = tmp_path / "base"
    shutil.copytree(tokenizer_folder, folder)
    (folder / "chat_template.jinja").unlink()
    return str(folder)


def template_file(folder: Path, text: str) -> str:
    file = folder / "template.jinja"
    file.write_text(text)
    return str(file)


async def refusal_of(bench: Any, **settings: Any) -> str:
    with pytest.raises(ConfigurationError) as raised:
        async with bench.unprepared("http://127.0.0.1:1", "vllm", **settings):
            pass
    return str(raised.value)


async def test_a_base_model_is_refused_with_two_ways_out(
    bench: Any, base_folder: str
) -> None:
    assert await refusal_of(bench, tokenizer_name=base_folder) == (
        f"the tokenizer {base_folder} has no chat template (base models have none): set "
        "--env.chat_template to plain for the built-in one, or to a file with another"
    )


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("plain", "Hm.\n\nUser: {}\n\nAssistant:"),
        (
            "{% for m in messages %}{{ m.content }}\n{% endfor %}Solution:",
            "Hm.\n{}\nSolution:",
        ),
    ],
)
async def test_a_base_model_trains_with_either_template(
    template: str, prompt: str, bench: Any, base_folder: str, tokenizer: Any
) -> None:
    given = template if template == "plain" else template_file(bench.folder, template)
    settings = {
        "tokenizer_name": base_folder,
        "chat_template": given,
        "system_prompt": "Hm.",
    }
    async with bench.playing(ONE, "vllm", **settings) as env:
        problem = await env.get_next_item()
        group, _ = await env.collect_trajectories(problem)
        await env.evaluate()
    tokens, masks = group["tokens"][0], group["masks"][0]
    assert tokenizer.decode(tokens[: masks.count(-100)]) == prompt.format(
        problem.question
    )
    assert tokenizer.decode([m for m in masks if m != -100]) == TEXT + TURN_END
    assert env.evaluation.report.default is not None


class RunsOn(PolicyServer):
    """A base model that goes on with the next turn, unless the request has a stop string."""

    def __init__(self, policy: Policy, tokenizer: Any) -> None:
        super().__init__(policy, tokenizer)
        self.stops: list[list[str] | None] = []

    def _cut(self, text: str, stops: list[str] | None) -> str:
        self.stops.append(stops)
        whole = f"{text}\n\nUser: and 1 + 1?\n\nAssistant: <answer>2</answer>"
        ends = [whole.find(stop) for stop in stops or [] if stop in whole]
        return whole[: min(ends, default=len(whole))]

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        reply = json.loads((await super()._chat(request)).text or "")
        for choice in reply["choices"]:
            message = choice["message"]
            message["content"] = self._cut(message["content"], body.get("stop"))
        return web.json_response(reply)


async def test_the_plain_template_ends_a_completion_before_the_next_turn(
    bench: Any, base_folder: str, tokenizer: Any
) -> None:
    settings = {"tokenizer_name": base_folder, "chat_template": "plain"}
    async with (
        RunsOn(ONE, tokenizer) as server,
        bench.environment(server.url, "openai", **settings) as env,
    ):
        problem = await env.get_next_item()
        group, _ = await env.collect_trajectories(problem)
    assert {*map(tuple, filter(None, server.stops))} == {("\nUser:",)}
    assert None not in server.stops
    assert not {"several_answers", "no_answer"} & {*group["statuses"]}


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_token_endpoints_get_the_stop_string_of_the_plain_template(
    kind: str, bench: Any, base_folder: str, tokenizer: Any
) -> None:
    bodies: list[dict[str, Any]] = []

    class Records(PolicyServer):
        async def _completion(self, request: web.Request) -> web.Response:
            bodies.append(await request.json())
            return await super()._completion(request)

        async def _generate(self, request: web.Request) -> web.Response:
            bodies.append((await request.json())["sampling_params"])
            return await super()._generate(request)

    settings = {"tokenizer_name": base_folder, "chat_template": "plain"}
    async with (
        Records(ONE, tokenizer) as server,
        bench.environment(server.url, kind, **settings) as env,
    ):
        await env.collect_trajectories(await env.get_next_item())
    assert bodies
    assert all(body["stop"] == ["\nUser:"] for body in bodies)


async def test_a_token_beyond_a_gap_in_the_vocabulary_is_known(
    bench: Any, tokenizer_folder: str, tmp_path: Path
) -> None:
    folder = tmp_path / "gap"
    shutil.copytree(tokenizer_folder, folder)
    file = folder / "tokenizer.json"
    description = json.loads(file.read_text())
    last = max(description["added_tokens"], key=lambda token: int(token["id"]))
    vocabulary = description["model"]["vocab"]
    above = 50 + max(vocabulary.values())
    old, last["id"] = last["id"], above
    if last["content"] in vocabulary:
        vocabulary[last["content"]] = above
    assert old < above
    file.write_text(json.dumps(description))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) < above
    word = ScriptedPolicy([f"{TEXT}{last['content']}"])
    async with (
        PolicyServer(word, tokenizer) as server,
        bench.environment(server.url, "vllm", tokenizer_name=str(folder)) as env,
    ):
        group, _ = await env.collect_trajectories(await env.get_next_item())
    assert above in list(group["tokens"][0])
    assert group["overrides"] == [{}] * len(group["tokens"])


async def test_a_template_that_does_not_work_is_refused(
    bench: Any, base_folder: str
) -> None:
    groups = bench.folder / "g.jsonl"
    settings = {"tokenizer_name": base_folder, "data_path_to_save_groups": str(groups)}
    missing = "([Errno 2] No such file or directory: 'plian'); did you mean plain?"
    for template, said in (
        ("plian", f"got 'plian' {missing}"),
        (
            "{{ raise_exception('no system role') }}",
            "(no system role): set --env.chat_template",
        ),
        ("{% for", "(unexpected 'end of template'"),
    ):
        given = (
            template if "{" not in template else template_file(bench.folder, template)
        )
        message = await refusal_of(bench, chat_template=given, **settings)
        assert not groups.exists()
        assert said in message
        assert "\n" not in message


async def test_an_emoji_in_a_variable_of_the_template_reaches_a_server(
    bench: Any, base_folder: str
) -> None:
    shown = "{{ tone }}{% for m in messages %}{{ m.content }}{% endfor %}"
    template = template_file(bench.folder, shown)
    settings = {
        "tokenizer_name": base_folder,
        "chat_template": template,
        "chat_template_kwargs": {"tone": "😀"},
    }
    tokenizer = AutoTokenizer.from_pretrained(base_folder)
    async with (
        PolicyServer(ScriptedPolicy([TEXT]), tokenizer) as server,
        bench.environment(server.url, "vllm", **settings) as env,
    ):
        group, _ = await env.collect_trajectories(await env.get_next_item())
    assert tokenizer.decode(group["tokens"][0]).startswith("😀")


@pytest.mark.parametrize("kind", ["openai", "vllm"])
async def test_an_answer_in_a_thought_that_the_template_opened_does_not_count(
    kind: str, bench: Any, tokenizer: Any
) -> None:
    opens = (
        tokenizer.chat_template + "{% if add_generation_prompt %}<think>\n{% endif %}"
    )
    written = ["I try <answer>1</answer> hmm", "Or 2?</think><answer>1</answer>"]
    settings = {
        "chat_template": template_file(bench.folder, opens),
        "include_messages": True,
        "dump_all_rollouts": True,
        "data_dir_to_save_evals": str(bench.folder / "evaluation"),
        "eval_attempts": 2,
    }
    async with bench.playing(ScriptedPolicy(written), kind, **settings) as env:
        group, _ = await env.collect_trajectories(await env.get_next_item())
        await env._run_evaluate()
    for masks, messages, text in zip(
        group["masks"], group["messages"], 2 * written, strict=True
    ):
        assert tokenizer.decode([m for m in masks if m != -100]) == text + TURN_END
        assert messages[-1]["content"] == f"<think>{text}"
    evaluated = rollouts_of(bench.folder / "evaluation", "samples.jsonl")
    for rollout in (*rollouts_of(bench.folder / "dumps", "*.jsonl"), *evaluated):
        opened, _, rest = rollout["conversation"][-1]["content"].partition("<think>")
        assert (opened, rest in written) == ("", True)
        assert (rollout["answer"] is None) == ("</think>" not in rest)
    assert len(evaluated) == 2


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        (
            ["<answer>", "</answer>"],
            "leaves </answer> and <answer> out of texts, so that no answer would",
        ),
        (
            ["<ponder_think>", "</ponder_think>"],
            "has <ponder_think> and </ponder_think>, which may mark a thought",
        ),
    ],
)
async def test_a_tokenizer_whose_tags_would_be_lost_is_refused(
    bench: Any, tokenizer_folder: str, tmp_path: Path, tags: list[str], said: str
) -> None:
    from transformers import AutoTokenizer

    special = AutoTokenizer.from_pretrained(tokenizer_folder)
    special.add_special_tokens({"additional_special_tokens": tags})
    special.save_pretrained(tmp_path / "special")
    assert said in await refusal_of(bench, tokenizer_name=str(tmp_path / "special"))


async def test_a_tokenizer_without_answer_tags_serves_answers_in_boxes(
    bench: Any, tokenizer_folder: str, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    special = AutoTokenizer.from_pretrained(tokenizer_folder)
    special.add_special_tokens({"additional_special_tokens": ["<answer>", "</answer>"]})
    special.save_pretrained(tmp_path / "special")
    settings = {"tokenizer_name": str(tmp_path / "special"), "answer_format": "boxed"}
    async with bench.unprepared("http://127.0.0.1:1", "vllm", **settings) as env:
        assert env.config.answer_format == "boxed"
