"""`grpo-adv select`: the groups worth training on, as they stand in the file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from grpo_cli.cli.command import takes
from grpo_cli.cli.compute import save
from grpo_cli.options.resolve import with_config
from grpo_cli.options.table import SELECT


@takes(*SELECT)
def select(typed: dict[str, Any]) -> None:
    """Keep groups by their facts, and rows inside them; what is kept is not changed.

    grpo-adv select rewards.jsonl --where '0.1 <= mean <= 0.9 and std > 0' -o alive.jsonl
    """
    from rich.console import Console

    from grpo_cli.cli.screen import Screen
    from grpo_cli.render import select as view
    from grpo_cli.render.progress import phases
    from grpo_cli.runs.select import run

    given = with_config(typed)
    with phases(Console(stderr=True, quiet=given.get("quiet", False))) as phase:
        facts = run(given["inputs"], given, phase)
    stream = sys.stderr if "stdout" in facts["outputs"] else sys.stdout
    text = json.dumps(dict(facts), indent=2, default=str, allow_nan=False)
    if "summary" in given:
        save(Path(given["summary"]), text)
    if given.get("json"):
        print(text, file=stream)
    elif not given.get("quiet"):
        view.render(facts, Screen(stream))
