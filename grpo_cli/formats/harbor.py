"""Job folders of Harbor, read as JSON lines: a row for each finished trial, with its rewards and its conversation.

The conversation is made from the trajectory in ATIF that many agents write; logs of other agents are not read. Nearly all
bytes of a job are in trajectories, so beyond a sample they are read only when texts are needed (`Trials`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl

from grpo_cli.errors import DataError, InputChanged
from grpo_cli.files.inputs import InMemory, Input, spooled
from grpo_cli.files.named import content, inside
from grpo_cli.files.trials import RESULT, trials_of
from grpo_cli.formats.blocks import raw_lines
from grpo_cli.formats.interface import Index, Scanned, Weaving
from grpo_cli.formats.jsonl.format import Jsonl, lines_of
from grpo_cli.values import cells
from grpo_cli.values.cells import Excerpt, Field
from grpo_cli.values.json_text import DECODER, refuse_doubled_inside
from grpo_cli.values.paths import value_at

# Harbor's ErrorPolicy.reward_valid: the agent itself ended the trial, so what it left was measured.
_MEASURED = frozenset({
    "AgentTimeoutError", "ContextWindowExceededError", "OutputTokenExceededError", "ContextLengthExceededError",
    "OutputLengthExceededError", "AgentSafetyRefusalError", "ContentPolicyViolationError",
})  # fmt: skip
_REWARD = "reward"
_TEXTS = "messages"  # the column that is made from trajectories
_SAMPLE = 20  # trials from which the layout is recognised
_AT_ONCE = 64  # trajectories in memory
_CHEAP = 256  # trajectories that are read to compare prompts
_ROLES = {"system": "system", "user": "user", "agent": "assistant"}
_COUNTED = ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd")
Object = Mapping[str, Any]


def trials(source: Input) -> Iterator[bytes]:
    """A line for each trial, as `Trials` reads it: the column of texts says where these are.

    Every line has every reward that any trial has, null where it lacks it.
    """
    found = [_facts(folder, source.max_line) for folder in trials_of(Path(source.path))]
    names = dict.fromkeys(name for _, rewards, _ in found for name in rewards)
    if not names:
        why = f"none of its {len(found)} finished trials has a reward"
        raise DataError(f"{source.name}: {why}", "exception.txt in the folder of a trial says why it failed")
    for keys, rewards, facts in found:
        named = {name if name == _REWARD else f"{_REWARD}_{name}": rewards.get(name) for name in names}
        yield json.dumps({**keys, **named, **facts}).encode() + b"\n"


def rows(source: Input) -> Iterator[bytes]:
    """The same with their conversations."""
    return _with_texts(source, trials(source))


def _with_texts(source: Input, lines: Iterable[bytes]) -> Iterator[bytes]:
    for row, messages in _conversations(source, lines):
        yield json.dumps({**row, _TEXTS: messages}).encode() + b"\n"


def _conversations(source: Input, lines: Iterable[bytes]) -> Iterator[tuple[Object, list[dict[str, Any]] | None]]:
    """The row of each line, and its conversation."""
    for line in lines:
        row = json.loads(line)
        trial, *parts = row[_TEXTS]
        if not Path(trial, RESULT).is_file():
            raise InputChanged.between_readings(source.name)
        yield row, _messages(Path(trial), parts, source.max_line)


@dataclass(frozen=True)
class Trials(Jsonl):
    """The lines of `trials`; a trajectory is read when the conversation of its row is needed."""

    def scan(self, source: Input, fields: Sequence[Field], watched: Collection[str] = ()) -> Scanned:
        """A column per field."""
        if not _ask_for_texts(field.name for field in fields):
            return super().scan(source, fields, watched)
        # The index is that of the longer lines with texts, not of the file.
        return replace(super().scan(_whole(source), fields, watched), index=None)

    def sample(self, source: Input) -> Sequence[Mapping[str, Any]]:
        """The first few rows."""
        return super().sample(_held(source, islice(raw_lines(source), _SAMPLE)))

    def parts(self, source: Input) -> Iterator[pl.DataFrame]:
        """The whole table, in types that fit all its values: a second attempt would read all conversations again."""
        return Jsonl.parts(replace(self, like_first=False), _whole(source))

    def cheap_rows(self, source: Input, index: Index, height: int) -> int:
        """The first rows: each has a file of its own."""
        return _CHEAP

    def rows(self, source: Input, wanted: Excerpt) -> Iterator[pl.DataFrame]:
        """Some columns of these rows; no other conversations are read."""
        if not _ask_for_texts(wanted.columns):
            yield from super().rows(source, wanted)
            return
        lines = lines_of(source, wanted.index, wanted.numbers)
        while some := list(islice(lines, _AT_ONCE)):
            # For `export`: skips making a line only to parse it again.
            if wanted.as_json and [*wanted.columns] == [_TEXTS]:
                texts = [[json.dumps(said) if said else None] for _, said in _conversations(source, some)]
                yield cells.frame_of_rows(texts, wanted)
                continue
            all_of_them = wanted._replace(index=None, numbers=np.arange(len(some)))
            yield from super().rows(_held(source, some), all_of_them)

    def weave(self, source: Input, index: Index, sink: BinaryIO, weaving: Weaving) -> Sequence[str]:
        """Write the whole table with the new columns."""
        return super().weave(_whole(source), None, sink, weaving)


def _whole(source: Input) -> Input:
    """All lines with their conversations."""
    lines = _with_texts(source, raw_lines(source))
    return replace(spooled(lines, source.name), max_line=source.max_line)


def _held(source: Input, lines: Iterable[bytes]) -> Input:
    """Some of the lines, with their conversations."""
    data = b"".join(_with_texts(source, lines))
    return replace(InMemory.of(data, source.name), max_line=source.max_line)


def _ask_for_texts(columns: Iterable[str]) -> bool:
    return any(re.split(r"[.\[]", name)[0] == _TEXTS for name in columns)


def _facts(folder: Path, most: int) -> tuple[Object, Object, Object]:
    """The row of a trial: the columns before its rewards, the rewards by name, and the columns after them."""
    place = f"{folder / RESULT}: not the result of a trial"
    try:
        result = json.loads(content(inside(folder, RESULT), most), object_pairs_hook=DECODER.object_pairs_hook)
        refuse_doubled_inside(result, lambda: place)
        return _facts_of(result, folder)
    except DataError:
        raise
    except (OSError, ValueError, RecursionError, TypeError, AttributeError, KeyError) as error:
        raise DataError(f"{place}: {str(error).lower()}", "remove that folder, or run the trial again") from error


def _object(value: Any) -> Object:
    """An object with these fields; of anything but an object or null an error."""
    return {} if value is None else {**value}


def _facts_of(result: Any, folder: Path) -> tuple[Object, Object, Object]:
    rewards = _object(_object(result.get("verifier_result")).get("rewards"))
    steps = result.get("step_results") or ()
    errors = [_object(each.get("exception_info")).get("exception_type") for each in (result, *steps)]
    errors = [error for error in errors if error is not None]
    agent = value_at(result, "agent_info", "name")
    model = value_at(result, "agent_info", "model_info", "name")
    source = result.get("source") or "adhoc"
    used = [_object(each.get("agent_result")) for each in (result, *steps)]
    totals = {name: [each[name] for each in used if each.get(name) is not None] for name in _COUNTED}
    named = [str(value_at(step, "step_name")) for step in steps]
    for name in named:
        inside(folder / "steps", name)
    parts = [f"steps/{name}/agent" for name in named] or ["agent"]
    keys = {
        "task": result["task_name"],
        "trial": result.get("trial_name"),
        "eval": "__".join(str(part) for part in (agent, model, source) if part),  # as in Harbor's statistics
    }
    facts = {
        "valid": bool(rewards) and all(error in _MEASURED for error in errors),
        "exception": errors[0] if errors else None,
        "agent": agent,
        "model": model,
        "source": source,
        "started_at": result.get("started_at"),
        "finished_at": result.get("finished_at"),
        **{name: sum(values) if values else None for name, values in totals.items()},
        "id": result.get("id"),
        # The trial that a regrade scored again.
        "source_trial_id": value_at(result, "config", "source_trial", "trial_id"),
        _TEXTS: [os.path.join(os.getcwd(), folder), *parts],  # noqa: PTH109, PTH118 - of 10,000 trials
    }
    return keys, rewards, facts


def _messages(trial: Path, parts: Iterable[str], most: int) -> list[dict[str, Any]] | None:
    """The conversation of a trial up to the last answer; None if its agent has left no whole trajectory."""
    try:
        turns = [turn for part in parts for step in _atif(trial, part, most) for turn in _turns(step)]
    except DataError:
        raise
    except (FileNotFoundError, ValueError, RecursionError, TypeError, AttributeError, KeyError):
        return None
    while turns and turns[-1]["role"] != "assistant":
        turns.pop()
    return turns or None


def _atif(trial: Path, part: str, most: int) -> Iterator[Object]:
    """The steps of a trajectory and of the files that continue it, without what these repeat."""
    name = "trajectory.json"
    seen = set[str]()
    while name and name not in seen:
        found = json.loads(content(inside(trial, f"{part}/{name}"), most))
        yield from (step for step in found["steps"] if not (seen and step.get("is_copied_context")))
        seen.add(name)
        name = Path(found.get("continued_trajectory_ref") or "").name


def _turns(step: Object) -> Iterator[dict[str, Any]]:
    """The messages of a step: what was said, and what the tools answered."""
    turn = {"role": _ROLES[step["source"]], "content": step.get("message")}
    if step.get("reasoning_content"):
        turn["reasoning_content"] = step["reasoning_content"]
    calls = step.get("tool_calls") or ()
    if calls:
        turn["tool_calls"] = [
            {
                "id": call.get("tool_call_id"),
                "type": "function",
                "function": {"name": call.get("function_name"), "arguments": call.get("arguments")},
            }
            for call in calls
        ]
    yield turn
    for result in value_at(step, "observation", "results") or ():
        call_id = result.get("source_call_id")
        by = {"role": "user"} if call_id is None else {"role": "tool", "tool_call_id": call_id}
        yield {**by, "content": result.get("content")}
