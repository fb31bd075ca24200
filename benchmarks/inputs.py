"""Every input of the benchmarks by its name: `python -m benchmarks.inputs NAME PATH [ROWS]`; without arguments they are listed.

The same name and number of rows give the same bytes on every machine: all that is random comes from one seed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from benchmarks import shapes_csv, shapes_files, shapes_jsonl, shapes_tables

SHAPES: Final[dict[str, shapes_files.Shape | shapes_jsonl.Shape]] = {
    **shapes_tables.SHAPES,
    **shapes_files.SHAPES,
    **shapes_jsonl.SHAPES,
    **shapes_csv.SHAPES,
}


def main() -> None:
    """Write one input, or list all of them, as lines of JSON."""
    if len(sys.argv) == 1:
        for name, shape in SHAPES.items():
            about = {"rows": shape.rows, "key": shape.key, "reward": shape.reward, "suffix": shape.suffix}
            print(json.dumps({"name": name, **about}))
        return
    shape = SHAPES[sys.argv[1]]
    shape.write(Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else shape.rows)


if __name__ == "__main__":
    main()
