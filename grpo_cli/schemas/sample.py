"""How a schema is recognised: by the path of a file, its column names, and the shapes of values in a few records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from grpo_cli.schemas.table import SHAPES, Schema
from grpo_cli.values import json_text


class Sample(NamedTuple):
    """The path, the names and a few records of a file."""

    path: str
    names: frozenset[str]
    records: Sequence[Mapping[str, Any]]


def misfit(name: str, shape: str, sample: Sample) -> str:
    """The reason why a column does not have that shape; empty if it does."""
    top = name.partition("[")[0]
    if name not in sample.names and top.split(".")[0] not in sample.names:
        return f"no {name}"
    values = [value for record in sample.records for value in values_of(record, name)]
    if not values:
        return f"no {name}" if name not in sample.names else ""
    known = [value for value in values if value is not None]
    return "" if all(map(SHAPES[shape], known)) else f"{name} is not {shape}"


def values_of(record: Mapping[str, Any], name: str) -> Iterator[Any]:
    """All values at a path, which may lead through lists."""
    head, each, rest = name.partition("[]")
    here = json_text.value_of(record, head)
    if here is json_text.ABSENT:
        return
    if not each:
        yield here
        return
    for item in here if isinstance(here, list) else ():
        if rest:
            yield from values_of(item, rest.removeprefix(".")) if isinstance(item, dict) else ()
        else:
            yield item


def reward_names(schema: Schema, sample: Sample) -> tuple[str, ...]:
    """The reward columns of a schema that has no fixed names for them.

    Trainers write the prompt, the response, the rewards and then the advantage. In files that still have this order,
    what follows was added later, by this tool for example, and is no reward.
    """
    rule = schema.rewards
    if rule is None:
        return schema.reward
    if rule.named_in:
        named = [value for record in sample.records for value in values_of(record, f"{rule.named_in}[]")]
        return tuple(name for name in dict.fromkeys(map(str, named)) if name in sample.names)
    names = [name for record in sample.records for name in record]
    fitting = [name for name in dict.fromkeys(names) if name not in rule.excluded]
    if rule.first and rule.first in fitting:
        return (rule.first,)
    if rule.named:
        return tuple(name for name in fitting if re.search(rule.named, name))
    values = {name: [record[name] for record in sample.records if record.get(name) is not None] for name in fitting}
    found = [name for name in fitting if values[name] and all(map(SHAPES[rule.shape], values[name]))]
    at = {name: place for place, name in enumerate(dict.fromkeys(names))}
    end = at.get(schema.advantage, len(at))
    if any(at.get(name, -1) > end for name in (schema.prompt, schema.response, *schema.group)):
        end = len(at)
    return tuple(name for name in found if at[name] < end) or tuple(found)
