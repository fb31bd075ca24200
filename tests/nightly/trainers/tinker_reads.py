"""tinker-cookbook: `tinker_reads.py sft FILE`, by the builder that it has for files of conversations."""

from __future__ import annotations

import sys
from typing import Any

import chz
from common import printed, texts, tokenizer
from tinker_cookbook import renderers
from tinker_cookbook.renderers import TrainOnWhat
from tinker_cookbook.supervised.data import FromConversationFileBuilder
from tinker_cookbook.supervised.types import ChatDatasetBuilderCommonConfig

of = tokenizer()
renderer = renderers.get_renderer("role_colon", of)
common = ChatDatasetBuilderCommonConfig(
    model_name_for_tokenizer="none", renderer_name="role_colon", max_length=None, batch_size=1,
    train_on_what=TrainOnWhat.ALL_ASSISTANT_MESSAGES,
)  # fmt: skip


@chz.chz
class Builder(FromConversationFileBuilder):
    """With a tokenizer that needs no model."""

    @property
    def renderer(self) -> Any:
        return renderer


data, _ = Builder(file_path=sys.argv[2], common_config=common)()
found = []
for at in range(len(data)):
    (datum,) = data.get_batch(at)
    ids = [*datum.model_input.to_ints(), datum.loss_fn_inputs["target_tokens"].data[-1]]
    weights = [0, *datum.loss_fn_inputs["weights"].data]  # targets are shifted by one
    found.append(texts(of, ids, [weight > 0 for weight in weights]))
printed(found)
