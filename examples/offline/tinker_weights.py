"""Weights of records in tinker's cross_entropy: `weighted(record, renderer)` is the datum of a line of the file.

The file is that of `grpo-adv export rollouts.jsonl --to weights --target tinker -o weighted.jsonl`. tinker's own builder of files
reads `messages` alone, so the weight of a record is multiplied into the weights of its tokens here.
"""

from __future__ import annotations

from typing import Any

import tinker
from tinker_cookbook.renderers import TrainOnWhat
from tinker_cookbook.supervised.data import conversation_to_datum


def weighted(
    record: dict[str, Any],
    renderer: Any,
    max_length: int | None = None,
    train_on_what: Any = TrainOnWhat.ALL_ASSISTANT_MESSAGES,
) -> Any:
    """The datum of a conversation; the weights of its tokens add up to the weight of the record."""
    datum = conversation_to_datum(record["messages"], renderer, max_length, train_on_what)
    of_tokens = datum.loss_fn_inputs["weights"].to_torch()
    datum.loss_fn_inputs["weights"] = tinker.TensorData.from_torch(of_tokens * record["weight"])
    return datum
