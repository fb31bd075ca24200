"""JSON lines of many shapes, eight rows a prompt; a test reads small versions of all of them."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Row = Callable[[int, random.Random], dict[str, Any]]

GROUP: Final = 8
_PROSE: Final = (
    "the of and to in is that it was for on are as with his they at be this from have or by one had not but what "
    "all were when we there can an your which their said if do will each about how up out them then she many some so these"
)
_WORDS: Final = _PROSE.split()
_LATEX: Final = (
    "\\frac{a}{b}", "$x^2 + y^2 = z^2$", "\\boxed{42}", "\\begin{align}\n", '"quoted"', "\n\n", "**Step 1:**",
    "\\sum_{i=1}^{n}", "\\text{so }", "\t", "解方程式", "因此答案是", "数学问题", "\\\\", "≤", "```python\nprint(1)\n```\n",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A kind of file: the rows of the whole benchmark, the names that matter, and how a row is made and written."""

    rows: int
    row: Row
    key: str = "prompt_id"
    reward: str = "reward"
    suffix: str = ".jsonl"
    newline: str = "\n"
    ascii_only: bool = True
    compact: bool = False

    def lines(self, rows: int) -> Iterator[str]:
        """The text of this many rows."""
        drawn = random.Random(7)
        separators = (",", ":") if self.compact else (", ", ": ")
        for number in range(rows):
            row = self.row(number, drawn)
            yield json.dumps(row, ensure_ascii=self.ascii_only, separators=separators) + self.newline

    def write(self, path: Path, rows: int) -> None:
        """Write a file of this many rows."""
        if self.suffix.endswith(".zst"):
            with pa.CompressedOutputStream(str(path), "zstd") as packed:
                for line in self.lines(rows):
                    packed.write(line.encode())
            return
        with gzip.open(path, "wb", 6) if self.suffix.endswith(".gz") else path.open("wb") as handle:
            handle.writelines(line.encode() for line in self.lines(rows))


def words(drawn: random.Random, count: int) -> str:
    """Prose of this many words."""
    return " ".join(drawn.choices(_WORDS, k=count))


def mathematics(drawn: random.Random, count: int) -> str:
    """Prose with line feeds, quotes, LaTeX and Chinese in it."""
    return " ".join(drawn.choices(_LATEX if drawn.random() < 0.3 else _WORDS, k=1)[0] for _ in range(count))


def _of_prompt(number: int) -> random.Random:
    """The same draw for all rows of a prompt."""
    return random.Random(number // GROUP)


def _wide(number: int, drawn: random.Random) -> dict[str, Any]:
    return {
        "prompt_id": f"prompt-{number // GROUP:09}",
        "sample": number % GROUP,
        "reward": float(drawn.randrange(2)),
        "completion": words(drawn, 900),
    }


def _narrow(number: int, drawn: random.Random) -> dict[str, Any]:
    return {"prompt_id": f"prompt-{number // GROUP}", "sample": number % GROUP, "reward": drawn.random()}


def _verl(number: int, drawn: random.Random) -> dict[str, Any]:
    return {
        "input": f"<|im_start|>user\n{mathematics(_of_prompt(number), 80)}<|im_end|>\n<|im_start|>assistant\n",
        "output": mathematics(drawn, 350),
        "gts": str(number % 100),
        "score": float(drawn.randrange(2)),
        "step": 1,
    }


def _chat(number: int, drawn: random.Random) -> dict[str, Any]:
    question = words(_of_prompt(number), 60)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a helpful assistant.\nAnswer in one sentence."},
        {"role": "user", "content": question},
    ]
    if drawn.random() < 0.3:
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": words(drawn, 50)})
    messages.append({"role": "assistant", "content": mathematics(drawn, 300)})
    row: dict[str, Any] = {"example_id": f"ex-{number // GROUP}", "messages": messages, "reward": drawn.random()}
    if drawn.random() < 0.9:
        row["metrics"] = {"format": drawn.random(), "length": drawn.randrange(500)}
    if drawn.random() < 0.5:
        row["info"] = {} if drawn.random() < 0.2 else {"source": "web", "level": drawn.randrange(5)}
    return row


def _tokens(number: int, drawn: random.Random) -> dict[str, Any]:
    size = drawn.randrange(100, 400)
    return {
        "prompt_id": f"p{number // GROUP}",
        "reward": drawn.random(),
        "token_ids": [drawn.randrange(150_000) for _ in range(size)],
        "logprobs": [-drawn.expovariate(1) for _ in range(size)],
    }


def _nested(number: int, drawn: random.Random) -> dict[str, Any]:
    return {
        "id": number,
        "problem": {"uid": f"u{number // GROUP}", "text": words(_of_prompt(number), 20)},
        "response": words(drawn, 40),
        "metrics": {"reward": {"total": drawn.random(), "format": 1.0}, "tokens": drawn.randrange(4000)},
    }


def _integers(number: int, drawn: random.Random) -> dict[str, Any]:
    return {
        "task_id": 100_000_000 + number // GROUP * 977,
        "sample_id": 100_000_000 + number,
        "reward": float(drawn.randrange(2)),
    }


def _ragged(number: int, drawn: random.Random) -> dict[str, Any]:
    row: dict[str, Any] = {"prompt_id": f"prompt-{number // GROUP}", "reward": drawn.randrange(2)}
    extra = {"len": drawn.randrange(999), "tag": words(drawn, 2), "ok": True, "note": None, "kl": drawn.random()}
    row |= {name: value for name, value in extra.items() if drawn.random() < 0.5}
    items = list(row.items())
    drawn.shuffle(items)
    return dict(items)


def _mixed_sizes(number: int, drawn: random.Random) -> dict[str, Any]:
    row = _narrow(number, drawn)
    if drawn.random() < 0.05:
        row["trace"] = mathematics(drawn, 800)
    return row


SHAPES: Final[dict[str, Shape]] = {
    "wide": Shape(rows=200_000, row=_wide),
    "narrow": Shape(rows=4_000_000, row=_narrow),
    "verl": Shape(rows=100_000, row=_verl, key="input", reward="score", ascii_only=False),
    "chat": Shape(rows=100_000, row=_chat, key="example_id"),
    "tokens": Shape(rows=60_000, row=_tokens),
    "nested": Shape(rows=600_000, row=_nested, key="problem.uid", reward="metrics.reward.total"),
    "integer-lines": Shape(rows=3_000_000, row=_integers, key="task_id", compact=True),
    "ragged": Shape(rows=2_000_000, row=_ragged),
    "mixed": Shape(rows=1_000_000, row=_mixed_sizes),
    "crlf": Shape(rows=1_000_000, row=_narrow, newline="\r\n"),
    "gz": Shape(rows=60_000, row=_verl, key="input", reward="score", suffix=".jsonl.gz"),
    "zst": Shape(rows=60_000, row=_verl, key="input", reward="score", suffix=".jsonl.zst"),
}
