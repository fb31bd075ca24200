"""together: `together_reads.py sft FILE`, by the check that its client makes of a file; its service trains, and cannot be run."""

from __future__ import annotations

import sys
from pathlib import Path

from common import printed
from together.lib.utils.files import check_file

printed([check_file(Path(sys.argv[2]))])
