"""verifiers: `verifiers_reads.py prompts FILE`, by the data of its tasks, from which a rollout starts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import verifiers.v1 as vf


class Data(vf.TaskData):
    """As an environment declares what it carries beside the prompt."""

    answer: str


found = []
for line in Path(sys.argv[2]).read_text(encoding="utf-8").splitlines():
    data = Data.model_validate(json.loads(line))
    turns = [{"role": message.role, "text": message.content} for message in data.prompt]
    found.append({"all": "".join(str(turn["text"]) for turn in turns), "turns": turns, "answer": data.answer})
sys.stdout.write(f"\nDECODED {json.dumps(found)}\n")
