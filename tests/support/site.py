"""What `mkdocs build` adds to the site: a JSON Schema for every `--json`, and what the search of the site should find first."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # mkdocs loads this file by its path

from tests.support.json_schemas import schemas

# Words that people search for, by the page that answers them. The page need not say them: some are names in other tools.
FOUND_BY: Final[Mapping[str, str]] = {
    "getting-started.md": "install installation quickstart group by grouping reward column config gate CI",
    "rewards.md": "zero std zero variance zero advantage no learning stuck plateau truncated truncation frac_reward_zero_std trend difficulty dead groups",
    "browse.md": "read rollouts view completions viewer terminal",
    "report.md": "html report dashboard plot charts share",
    "against.md": "compare runs compare checkpoints regression before after pass@k significance",
    "trainers.md": "match trl verl openrlhf reproduce advantages compare trainers",
    "audit.md": "which formula reverse engineer check logged advantages",
    "choosing.md": "leave-one-out leave one out rloo dr grpo which method",
    "select.md": "filter prompts filter groups dynamic sampling curriculum drop easy drop hard subset holdout split",
    "export.md": "dpo sft kto preference pairs best of n rejection sampling",
    "masked.md": "mask masking failed timeout crashed exclude rows",
}
GUIDE = 300.0  # how much more a page counts that answers a question: a word of a title counts 1,000 times as much as one of a text
REFERENCE = {"gates.md": 0.05, "schemas.md": 0.1, "options.md": 0.1, "presets.md": 0.1, "numbers.md": 0.3}


def on_files(files: Any, config: Any) -> Any:
    """Add the schemas to the files of the site."""
    for name, text in schemas().items():
        files.append(File.generated(config, f"schemas/{name}.json", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Say how much a page counts in the search."""
    name = page.file.src_uri
    page.meta["search"] = {"boost": GUIDE if name in FOUND_BY else REFERENCE.get(name, 1.0)}
    return markdown


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Add the words below the title, where only the search sees them."""
    words = FOUND_BY.get(page.file.src_uri)
    if words is None:
        return html
    title, end, rest = html.partition("</h1>")
    return f"{title}{end}<p hidden>{escape(words)}</p>{rest}"
