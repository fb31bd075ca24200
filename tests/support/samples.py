"""The sample data, copied to where a test or a page of the documentation uses it."""

from __future__ import annotations

import shutil
from pathlib import Path

SAMPLES = Path(__file__).resolve().parent.parent.parent / "sample_data"


def samples_in(folder: Path) -> None:
    """Copy the samples as they are in the repository, without what somebody computed beside them."""
    shutil.copytree(SAMPLES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.advantages.*", "__*"))
