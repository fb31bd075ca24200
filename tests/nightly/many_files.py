"""Computes the named files in one process, which may crash; prints each name first, and stops at a wrong result."""

from __future__ import annotations

import sys

from tests.support.command import adv

for path in sys.argv[1:]:
    output = f"{path}.out.{path.rpartition('.')[2]}"
    for options in ([], ["--scale", "none"]):
        print(path, flush=True)  # noqa: T201 - the last one that is printed is the one that crashed
        done = adv("compute", path, "-o", output, "-q", "--force", *options)
        refused = done.status == 1 and done.err.startswith("error: ") and done.err.count("\n") == 1
        if done.status != 0 and not refused:
            sys.exit(f"{path}: {done}")
