"""What `mkdocs build` adds to the site: a JSON Schema for every `--json`, made from the types of the code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # mkdocs loads this file by its path

from tests.support.json_schemas import schemas


def on_files(files: Any, config: Any) -> Any:
    """Add the schemas to the files of the site."""
    for name, text in schemas().items():
        files.append(File.generated(config, f"schemas/{name}.json", content=text))
    return files
