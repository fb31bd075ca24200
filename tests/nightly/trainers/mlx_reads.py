"""mlx-lm: `mlx_reads.py KIND FOLDER`, by its own loader of a folder; the tokens that its loss counts (tuner/trainer.py, `default_loss`)."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from common import printed, texts, tokenizer
from mlx_lm.tuner.datasets import load_dataset

of = tokenizer()
settings = SimpleNamespace(
    data=sys.argv[2], train=True, test=False, hf_dataset=False, mask_prompt=sys.argv[1] == "mask-prompt"
)
train, valid, _ = load_dataset(settings, of)
found = []
for data in (train, valid):
    for at in range(len(data)):
        tokens, offset = data.process(data[at])
        # targets are shifted by one: step t counts where offset <= t <= length
        found.append({**texts(of, tokens, [place >= offset for place in range(len(tokens))]), "valid": data is valid})
printed(found)
