"""Exported files in the hands of those who read them: TRL's trainers and a weighted loss run two steps on the CPU on a tiny random model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import adv
from tests.support.jobs import SAMPLES, rows_of, write

pytestmark = pytest.mark.filterwarnings("ignore")  # those of other people's libraries
FORMS = ("messages", "texts", "conversation")
SPECIAL = {"pad_token": "<pad>", "eos_token": "<eos>"}
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """A token for each byte: nothing is downloaded."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: at for at, token in enumerate([*SPECIAL.values(), *alphabet])}
    plain = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = tokenizers.decoders.ByteLevel()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, **SPECIAL)
    made.chat_template = TEMPLATE
    return made


def tiny_model(tokenizer: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    transformers.set_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def exported(kind: str, out: Path, *options: str, source: Path = SAMPLES / "chats.jsonl") -> Any:
    """An exported file as `datasets` loads it."""
    datasets = pytest.importorskip("datasets")
    done = adv(f"export {source} --to {kind} -o {out}", *options)
    assert done.status == 0, done.err
    builder = {".jsonl": "json", ".parquet": "parquet"}[out.suffix]
    return datasets.load_dataset(builder, data_files=str(out), split="train", cache_dir=str(out.parent / "cache"))


def source_of(form: str, folder: Path) -> Path:
    """The sample with a prompt and a completion as messages, as plain texts, or as one conversation."""
    rows = rows_of(SAMPLES / "chats.jsonl")
    for row in rows:
        if form == "texts":
            row |= {name: row[name][0]["content"] for name in ("prompt", "completion")}
        elif form == "conversation":
            row["messages"] = row.pop("prompt") + row.pop("completion")
    return write(folder / f"{form}.jsonl", rows)


def options_of(folder: Path) -> dict[str, Any]:
    return {
        "output_dir": str(folder / "model"), "max_steps": 2, "per_device_train_batch_size": 2, "report_to": [],
        "use_cpu": True, "logging_steps": 1, "save_strategy": "no", "bf16": False,
    }  # fmt: skip


def losses(trainer: Any) -> list[float]:
    trainer.train()
    assert trainer.state.global_step == 2
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_trl_finetunes_on_the_best_rows(form: str, suffix: str, tmp_path: Path, tokenizer: Any) -> None:
    trl = pytest.importorskip("trl")
    dataset = exported("sft", tmp_path / f"sft.{suffix}", source=source_of(form, tmp_path))
    trainer = trl.SFTTrainer(
        model=tiny_model(tokenizer), args=trl.SFTConfig(**options_of(tmp_path)), train_dataset=dataset,
        processing_class=tokenizer,
    )  # fmt: skip
    assert all(math.isfinite(loss) and loss > 0 for loss in losses(trainer))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_trl_learns_preferences_from_pairs(form: str, suffix: str, tmp_path: Path, tokenizer: Any) -> None:
    trl = pytest.importorskip("trl")
    dataset = exported("pairs", tmp_path / f"pairs.{suffix}", "--pairs", "all", source=source_of(form, tmp_path))
    trainer = trl.DPOTrainer(
        model=tiny_model(tokenizer), ref_model=tiny_model(tokenizer), args=trl.DPOConfig(**options_of(tmp_path)),
        train_dataset=dataset, processing_class=tokenizer,
    )  # fmt: skip
    first, *_ = losses(trainer)
    assert first == pytest.approx(math.log(2), abs=1e-3)  # the policy is still the reference


def tokens_of(row: dict[str, Any], tokenizer: Any) -> tuple[list[int], list[int]]:
    """The tokens of a prompt and of the response to it, whichever way they are written."""
    if isinstance(row.get("prompt"), str):
        return tuple(tokenizer(row[name])["input_ids"] for name in ("prompt", "completion"))
    turns = row["messages"] if "messages" in row else row["prompt"] + row["completion"]
    prompt = tokenizer.apply_chat_template(turns[:-1], add_generation_prompt=True, tokenize=False)
    whole = tokenizer.apply_chat_template(turns, tokenize=False)
    assert whole.startswith(prompt)
    return tokenizer(prompt)["input_ids"], tokenizer(whole[len(prompt) :])["input_ids"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_weighted_loss_takes_two_steps(form: str, suffix: str, tmp_path: Path, tokenizer: Any) -> None:
    torch = pytest.importorskip("torch")
    dataset = exported("weights", tmp_path / f"weights.{suffix}", source=source_of(form, tmp_path))
    model = tiny_model(tokenizer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    seen = []
    for _ in range(2):
        total = torch.zeros(())
        for row in dataset.select(range(4)):
            prompt, response = tokens_of(row, tokenizer)
            ids = torch.tensor([prompt + response])
            labels = torch.tensor([[-100] * len(prompt) + response])
            total = total + row["weight"] * model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        seen.append(float(total))
    assert seen[1] < seen[0]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_datasets_reads_the_types(suffix: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pairs = exported("pairs", tmp_path / f"pairs.{suffix}").features
    names = {"role": "string", "content": "string"}
    for kind, form, texts in (("sft", "conversation", ["messages"]), ("weights", "messages", ["prompt", "completion"])):
        found = exported(kind, tmp_path / f"{kind}.{suffix}", source=source_of(form, tmp_path)).features
        assert all({n: f.dtype.removeprefix("large_") for n, f in found[one].feature.items()} == names for one in texts)
        assert {found[name].dtype for name in ("reward", "advantage", "weight") if name in found} == {"float64"}
    turn = {"role": datasets.Value("string"), "content": datasets.Value("string")}
    for name in ("prompt", "chosen", "rejected"):
        assert pairs[name].feature == turn
    assert {pairs[name].dtype for name in ("chosen_reward", "rejected_reward", "margin")} == {"float64"}
    prompts = exported("prompts", tmp_path / f"prompts.{suffix}", "--pass-at", "1,2").features
    assert {name: prompts[name].dtype for name in ("n", "solve_rate", "pass@1")} == {
        "n": "int64", "solve_rate": "float64", "pass@1": "float64",
    }  # fmt: skip
    rows = [{"prompt_id": at // 2, "reward": at % 2, "completion_ids": [1] * (at + 1)} for at in range(4)]
    lengths = write(tmp_path / "lengths.jsonl", rows)
    tokens = exported("tokens", tmp_path / f"tokens.{suffix}", "--tokens", "completion_ids", source=lengths)
    types = [tokens.features[name].feature.dtype for name in ("advantages", "completion_ids")]
    assert types == ["float64", "int64"]
    assert [len(row["advantages"]) for row in tokens] == [1, 2, 3, 4]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_datasets_reads_tool_calls(suffix: str, tmp_path: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    turns = [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_call_id": "1"},
    ]
    rows = [
        {"prompt_id": 1, "reward": reward, "messages": [*turns, {"role": "assistant", "content": answer}]}
        for reward, answer in enumerate(("three", "two"))
    ]
    source = write(tmp_path / "tools.jsonl", rows)
    (row,) = exported("sft", tmp_path / f"sft.{suffix}", source=source)
    without_nulls = [{name: value for name, value in turn.items() if value is not None} for turn in row["messages"]]
    assert without_nulls == [
        turns[0], {"role": "assistant", "tool_calls": [call]}, turns[2], {"role": "assistant", "content": "two"},
    ]  # fmt: skip
