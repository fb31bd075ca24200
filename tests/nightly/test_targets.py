"""What trainers read of our exports: their own released loaders, and the texts that they then train on, decoded.

An environment for one trainer at a time is made below the folder that GRPO_ADV_TRAINERS names (default: in the folder of
temporary files), and used again. No model is downloaded: tokenizers are made here, chat templates come with the packages.
A target that this file does not run says `read` in `targets.toml`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grpo_cli.targets.table import targets
from tests.support.command import adv, here

__all__ = ["here"]

SCRIPTS = Path(__file__).with_name("trainers")
EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "offline"
FOLDER = Path(os.environ.get("GRPO_ADV_TRAINERS", Path(tempfile.gettempdir()) / "grpo-adv-trainers"))
TORCH = "torch==2.13.0"
PACKAGES = {
    "trl": [TORCH, "trl==1.16.0", "datasets", "jinja2"],
    "prime-rl": [TORCH, "trl==1.16.0", "renderers==0.1.12", "httpx", "openai"],
    "verl": [
        TORCH,
        "transformers<5",
        "datasets",
        "omegaconf",
        "ray",
        "orjson",
        "tensordict",
        "codetiming",
        "dill",
        "hydra-core",
        "pandas",
        "pillow",
    ],
    "tinker": [TORCH, "tinker-cookbook==0.6.1"],
    "ms-swift": [TORCH, "ms-swift==4.6.0"],
    "mlx-lm": [TORCH, "mlx-lm==0.32.2", "mlx[cpu]", "datasets"],
    "openrlhf": [TORCH, "transformers<5", "datasets", "pylatexenc"],
    "llama-factory": [
        TORCH,
        "transformers<5",
        "datasets",
        "peft",
        "accelerate",
        "trl==0.24.0",
        "omegaconf",
        "fire",
        "pillow",
    ],
    "axolotl": [TORCH, "transformers", "datasets", "peft", "accelerate", "addict", "colorama", "pydantic"],
    "chat": ["together==3.1.1"],
    "verifiers": ["verifiers==0.4.0"],  # the environments of prime-rl
    "twinkle": [TORCH, "twinkle-kit==0.5.1"],  # for test_drift.py alone
}
# Its own requirements need a GPU: the package alone is on the path.
ALONE = {
    "verl": "verl==0.9.1",
    "openrlhf": "openrlhf==0.11.2",
    "llama-factory": "llamafactory==0.9.5",
    "axolotl": "axolotl==0.19.0",
}


def environment(name: str) -> Path:
    """The Python of an environment in which a trainer is installed."""
    home = FOLDER / name
    if not (home / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        pip = [str(home / "bin" / "pip"), "install", "-q", "--no-compile"]
        subprocess.run([*pip, *PACKAGES[name]], check=True, timeout=1200)
        if name in ALONE:
            subprocess.run([*pip, "--no-deps", ALONE[name]], check=True, timeout=600)
        (home / "ready").touch()
    return home / "bin" / "python"


def decoded(trainer: str, script: str, kind: str, file: Path) -> list[dict[str, Any]]:
    """What a trainer makes of a file."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SCRIPTS, EXAMPLES))), "CUDA_VISIBLE_DEVICES": ""}
    words = [str(environment(trainer)), str(SCRIPTS / script), kind, str(file.resolve())]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600, check=False)
    found = re.search(r"^DECODED (.*)$", done.stdout, re.MULTILINE)
    assert found, done.stderr[-3000:]
    records: list[dict[str, Any]] = json.loads(found[1])
    return records


# --- rollouts whose every part has a mark ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A prompt and a response, a turn each, as (role, text); `think` and `call` belong to the turn of the model that follows."""

    prompt: tuple[tuple[str, str], ...]
    response: tuple[tuple[str, str], ...]
    tools: bool = False

    def marks(self, *roles: str, prompt: bool = True, response: bool = True) -> list[str]:
        """The marks of these roles in their order."""
        turns = [*(self.prompt if prompt else ()), *(self.response if response else ())]
        return [text for role, text in turns if role in roles]


MODEL = ("assistant", "think", "call")
CASES = {
    "one turn": Case((("user", "ask"),), (("assistant", "say"),)),
    "system prompt": Case((("system", "sys"), ("user", "ask")), (("assistant", "say"),)),
    "few-shot": Case((("user", "u1"), ("assistant", "shot"), ("user", "u2")), (("assistant", "say"),)),
    "many turns": Case((("user", "u1"),), (("assistant", "a1"), ("user", "u2"), ("assistant", "a2"))),
    "tools": Case((("user", "ask"),), (("call", "in"), ("tool", "out"), ("assistant", "say")), tools=True),
    "reasoning": Case((("user", "ask"),), (("think", "why"), ("assistant", "say"))),
    "scripts and emoji": Case((("user", "שלום 你好"),), (("assistant", "é👩\u200d🔬ß"),)),
}


def mark(text: str) -> str:
    return f"«{text}»"


def marks(text: str) -> list[str]:
    return re.findall(r"«([^»]*)»", text)


def tools(at: int) -> list[dict[str, Any]]:
    """The tool of one record: no other has its argument."""
    arguments = {"type": "object", "properties": {f"only{at}": {"type": "string"}}}
    return [{"type": "function", "function": {"name": f"add{at}", "description": "adds", "parameters": arguments}}]


def as_chat(turns: tuple[tuple[str, str], ...], at: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    open_turn: dict[str, Any] = {}
    for role, text in turns:
        if role == "think":
            open_turn = {"role": "assistant", "reasoning_content": mark(text)}
        elif role == "call":
            call = {"name": f"add{at}", "arguments": json.dumps({f"only{at}": mark(text)}, ensure_ascii=False)}
            called = [{"id": "c1", "type": "function", "function": call}]
            messages.append({**open_turn, "role": "assistant", "content": "", "tool_calls": called})
            open_turn = {}
        elif role == "tool":
            messages.append({"role": "tool", "tool_call_id": "c1", "content": mark(text)})
        else:
            messages.append({**open_turn, "role": role, "content": mark(text)})
            open_turn = {}
    return messages


def as_items(turns: tuple[tuple[str, str], ...], at: int) -> list[dict[str, Any]]:
    """The same as items of OpenAI's Responses."""
    items: list[dict[str, Any]] = []
    for role, text in turns:
        if role == "think":
            items.append({"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": mark(text)}]})
        elif role == "call":
            arguments = json.dumps({f"only{at}": mark(text)}, ensure_ascii=False)
            items.append({"type": "function_call", "call_id": "c1", "name": f"add{at}", "arguments": arguments})
        elif role == "tool":
            items.append({"type": "function_call_output", "call_id": "c1", "output": mark(text)})
        else:
            kind = "output_text" if role == "assistant" else "input_text"
            items.append({"type": "message", "role": role, "content": [{"type": kind, "text": mark(text)}]})
    return items


def rollouts(form: str, names: tuple[str, ...]) -> None:
    """A file with a group for each case: the case itself is solved, and a wrong answer is not."""
    rows: list[dict[str, Any]] = []
    for at, name in enumerate(names):
        case = CASES[name]
        for sample, reward in enumerate((1.0, 0.0)):
            response = case.response if reward else (*case.response[:-1], ("assistant", "wrong"))
            if form == "chat":
                made = {
                    "prompt": as_chat(case.prompt, at),
                    "completion": as_chat(response, at),
                    "task_id": at,
                    "reward": reward,
                }
                rows.append({**made, "answer": f"answer {at}", **({"tools": tools(at)} if case.tools else {})})
            else:
                flat = [{"type": "function", **tool["function"]} for tool in tools(at)] if case.tools else []
                asked = {"input": as_items(case.prompt, at), "tools": flat}
                output = {"output": as_items(response, at)}
                rows.append({"responses_create_params": asked, "response": output, "reward": reward, "answer": f"answer {at}",
                             "_ng_task_index": at, "_ng_rollout_index": sample})  # fmt: skip
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def exported(target: str, kind: str, suffix: str, more: str = "") -> Path:
    """The export; of a trainer that has a table of data sets, with its entry beside it."""
    name = f"out{suffix}"
    done = adv(f"export in.jsonl --to {kind} --target {target} -o {name} {more} --json")
    assert not done.status, done.err
    for line in json.loads(done.out)["read_by"]:
        if line.startswith("dataset_info.json: "):
            Path(f"{name}.entry").write_text(line.partition(": ")[2], encoding="utf-8")
    return Path(name)


# --- SFT ------------------------------------------------------------------------------------------------------------

ALL_OF_IT = ("system", "user", "tool", *MODEL)
# A trainer, its script, how it is asked, and of which roles it trains on the prompt and on the response.
SFT: list[tuple[str, str, str, tuple[str, ...], tuple[str, ...]]] = [
    ("trl", "trl_reads.py", "sft", (), ALL_OF_IT),
    ("trl", "trl_reads.py", "assistant-only", (), MODEL),
    ("verl", "verl_reads.py", "sft", MODEL, MODEL),
    ("ms-swift", "swift_reads.py", "sft", MODEL, MODEL),
    ("prime-rl", "prime_reads.py", "sft", MODEL, MODEL),
    ("tinker", "tinker_reads.py", "sft", MODEL, MODEL),
    ("openrlhf", "openrlhf_reads.py", "sft", (), ALL_OF_IT),
    ("llama-factory", "factory_reads.py", "sft", MODEL, MODEL),
    ("axolotl", "axolotl_reads.py", "sft", MODEL, MODEL),
    ("mlx-lm", "mlx_reads.py", "sft", ALL_OF_IT, ALL_OF_IT),
]
# What a trainer cannot show or train on, by its own code: `targets.toml` says so of each.
CANNOT = {
    "tinker": {"reasoning", "tools"},  # its renderer of plain roles writes contents alone
    "ms-swift": {"reasoning"},
    "llama-factory": {"reasoning"},  # its converter reads role and content
}
# Whose template is not given the tools.
NO_TOOLS = {"openrlhf", "tinker"}


@pytest.mark.parametrize("form", ["chat", "responses"])
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize(("target", "script", "asked", "of_prompt", "of_response"), SFT)
def test_a_trainer_trains_on_what_its_target_says(
    target: str,
    script: str,
    asked: str,
    of_prompt: tuple[str, ...],
    of_response: tuple[str, ...],
    suffix: str,
    form: str,
) -> None:
    if targets()[target].kinds["sft"].folder:
        suffix = "/"
    elif suffix not in targets()[target].suffixes_of("sft"):
        assert adv(f"export in.jsonl --to sft --target {target} -o out{suffix}").status == 2
        return
    names = tuple(name for name in CASES if name not in CANNOT.get(target, ()))
    rollouts(form, names)
    found = decoded(target, script, asked, exported(target, "sft", suffix))
    by_marks = {tuple(marks(one["all"])): one for one in found}
    assert len(by_marks) == len(found) == len(names)
    for at, name in enumerate(names):
        case = CASES[name]
        one = by_marks[tuple(case.marks(*ALL_OF_IT))]
        trained = [*case.marks(*of_prompt, response=False), *case.marks(*of_response, prompt=False)]
        assert marks(one["trained"]) == trained, name
        shown = {number for number in range(len(names)) if f"only{number}" in one["all"]}
        assert shown == ({at} if case.tools else set()), name  # its own tool, and no argument of another's
        assert ("adds" in one["all"]) == (case.tools and target not in NO_TOOLS), name  # what describes the tool


@pytest.mark.parametrize(
    ("target", "script"), [(name, script) for name, script, *_ in SFT if "reasoning" in CANNOT.get(name, ())]
)
def test_reasoning_that_is_not_read_is_told(target: str, script: str) -> None:
    rollouts("chat", ("reasoning", "one turn"))
    found = decoded(target, script, "sft", exported(target, "sft", ".jsonl"))
    assert [marks(one["trained"]) for one in found] == [["say"], ["say"]]
    done = adv(f"export in.jsonl --to sft --target {target} -o again.jsonl --json")
    assert any("reasoning_content" in line for line in json.loads(done.out)["read_by"])


def test_mlx_lm_trains_on_the_last_message_with_its_flag_and_reads_both_files_of_the_folder() -> None:
    names = tuple(CASES)
    rollouts("chat", names)
    folder = exported("mlx-lm", "sft", "/", "--holdout 0.4")
    assert sorted(file.name for file in folder.iterdir()) == ["train.jsonl", "valid.jsonl"]
    found = {tuple(marks(one["all"])): one for one in decoded("mlx-lm", "mlx_reads.py", "mask-prompt", folder)}
    assert len(found) == len(names)
    assert {one["valid"] for one in found.values()} == {True, False}
    for case in CASES.values():
        last = [text for role, text in case.response[-2:] if role == "think"] + [case.response[-1][1]]
        assert marks(found[tuple(case.marks(*ALL_OF_IT))]["trained"]) == last


def test_hosted_finetuning_takes_the_file() -> None:
    """As together's client checks it before it is sent."""
    for form in ("chat", "responses"):
        rollouts(form, tuple(CASES))
        (report,) = decoded("chat", "together_reads.py", "sft", exported("chat", "sft", ".jsonl", "--force"))
        assert (report["is_check_passed"], report["num_samples"]) == (True, len(CASES))


# --- pairs, labels, prompts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("form", ["chat", "responses"])
def test_trl_compares_the_two_sides_of_a_pair(form: str, suffix: str) -> None:
    names = tuple(CASES)
    rollouts(form, names)
    file = exported("trl", "pairs", suffix)
    for name, one in zip(names, decoded("trl", "trl_reads.py", "pairs", file), strict=True):
        case = CASES[name]
        chosen = case.marks(*ALL_OF_IT, prompt=False)
        assert marks(one["all"]) == case.marks(*ALL_OF_IT, response=False)
        assert (marks(one["chosen"]), marks(one["rejected"])) == (chosen, [*chosen[:-1], "wrong"])
    (loss,) = decoded("trl", "trl_reads.py", "margin", file)
    assert loss == {"margin": False}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("form", ["chat", "responses"])
@pytest.mark.parametrize(
    ("target", "script"),
    [("openrlhf", "openrlhf_reads.py"), ("llama-factory", "factory_reads.py"), ("axolotl", "axolotl_reads.py")],
)
def test_a_trainer_compares_one_answer_with_the_other(target: str, script: str, form: str, suffix: str) -> None:
    names = ("one turn", "system prompt", "few-shot", "scripts and emoji")
    rollouts(form, names)
    found = decoded(target, script, "pairs", exported(target, "pairs", suffix))
    for name, one in zip(names, found, strict=True):
        case = CASES[name]
        assert marks(one["all"]) == case.marks(*ALL_OF_IT, response=False)
        assert (marks(one["chosen"]), marks(one["rejected"])) == (case.marks(*MODEL, prompt=False), ["wrong"])


def test_ms_swift_reads_both_sides_of_a_pair() -> None:
    rollouts("responses", ("one turn", "few-shot", "many turns"))
    for row in decoded("ms-swift", "swift_reads.py", "pairs", exported("ms-swift", "pairs", ".jsonl")):
        ours = [marks(str(message["content"])) for message in row["messages"]]
        theirs = [marks(str(message["content"])) for message in row["rejected_messages"]]
        assert ours[:-1] == theirs[:-1]
        assert (len(ours[-1]), theirs[-1]) == (1, ["wrong"])


@pytest.mark.parametrize(
    ("target", "script"),
    [("trl", "trl_reads.py"), ("ms-swift", "swift_reads.py"), ("llama-factory", "factory_reads.py")],
)
def test_labels_are_those_of_the_rows(target: str, script: str) -> None:
    rollouts("chat", ("one turn", "system prompt", "few-shot"))
    found = decoded(target, script, "labels", exported(target, "labels", ".jsonl"))
    assert [(marks(one["trained"])[-1] == "wrong", one["label"]) for one in found] == [(False, True), (True, False)] * 3


def test_the_tokens_of_a_record_weigh_what_the_record_weighs_in_tinker() -> None:
    rollouts("responses", ("one turn", "system prompt", "few-shot"))
    file = exported("tinker", "weights", ".jsonl", "--method rloo --beta 0.5")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    found = decoded("tinker", "tinker_reads.py", "weights", file)
    assert [round(one["weight"], 4) for one in found] == [round(record["weight"], 4) for record in records]
    assert len({round(one["weight"], 4) for one in found}) == 2
    assert [marks(one["trained"])[-1] == "wrong" for one in found] == [False, True] * 3


@pytest.mark.parametrize(
    ("target", "script"), [("trl", "trl_reads.py"), ("verl", "verl_reads.py"), ("openrlhf", "openrlhf_reads.py")]
)
def test_each_prompt_comes_once_as_it_was_sampled(target: str, script: str) -> None:
    names = ("one turn", "system prompt", "few-shot")
    rollouts("responses", names)
    found = decoded(target, script, "prompts", exported(target, "prompts", ".parquet", "--keep answer"))
    expected = [CASES[name].marks(*ALL_OF_IT, response=False) for name in names]
    assert [marks(one["all"]) for one in found] == expected


def test_an_environment_of_prime_rl_takes_each_prompt_with_its_answer() -> None:
    names = ("one turn", "system prompt", "few-shot")
    rollouts("responses", names)
    file = exported("prime-rl", "prompts", ".jsonl", "--keep answer")
    for at, one in enumerate(decoded("verifiers", "verifiers_reads.py", "prompts", file)):
        case = CASES[names[at]]
        assert marks(one["all"]) == case.marks(*ALL_OF_IT, response=False)
        assert [turn["role"] for turn in one["turns"]] == [role for role, _ in case.prompt]
        assert one["answer"] == f"answer {at}"


# Beside SFT, the kinds of each target that a test above runs; TRL's groups in test_offline.py.
OTHERS = {
    "trl": {"pairs", "labels", "prompts", "groups"},
    "verl": {"prompts"},
    "openrlhf": {"pairs", "prompts"},
    "ms-swift": {"pairs", "labels"},
    "llama-factory": {"pairs", "labels"},
    "axolotl": {"pairs"},
    "prime-rl": {"prompts"},
    "tinker": {"weights"},
    "chat": set(),
}


def test_what_is_said_to_have_run_is_run_here() -> None:
    said = {
        name: {kind for kind, reads in row.kinds.items() if (reads.checked or row.checked) == "run"}
        for name, row in targets().items()
    }
    ran = {target: {"sft", *OTHERS.get(target, ())} for target in [*(target for target, *_ in SFT), "chat"]}
    assert {name: kinds for name, kinds in said.items() if kinds} == ran
