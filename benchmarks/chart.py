"""The chart of README.md: `python -m benchmarks.chart --scratch DIR` measures its cases, `--draw` only draws them again.

`speed.json` keeps what was measured, and a test compares docs/speed.svg with it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.run import CASES, Bench

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HERE: Final = Path(__file__).resolve().parent
MEASURED: Final = HERE / "speed.json"
PICTURE: Final = HERE.parent / "docs" / "speed.svg"
SHOWN: Final = {
    "wide-parquet": "Parquet, 200k rows with 4 KB of text",
    "together": "Parquet, 10M rows, 1.25M text keys",
    "random": "Parquet, 8M rows in no order",
    "chat": "JSON lines, 100k chats",
    "wide": "JSON lines, 200k with 4 KB of text",
    "narrow": "JSON lines, 4M short ones",
    "csv-short": "CSV, 2M short records",
}
WHO: Final = {"tool": "grpo-adv", "polars": "polars script", "duckdb": "duckdb script", "cp": "cp, the limit"}
COLOURS: Final = {  # on light paper, and on dark
    "paper": ("#fdfdfb", "#15181c"),
    "ink": ("#222222", "#e4e6e9"),
    "tool": ("#1f5fae", "#82b1ff"),
    "polars": ("#b07d00", "#f2b53c"),
    "duckdb": ("#5e3c99", "#b39ddb"),
    "cp": ("#8d9299", "#6b747e"),
}
WIDE: Final = 760
LEFT: Final = 270  # where bars begin
BAR: Final = 11
BLOCK: Final = 64


def measure(scratch: Path, repeat: int) -> dict[str, dict[str, float]]:
    """Seconds of each case, by who did it."""
    bench = Bench(scratch, 1.0, repeat)
    found = {}
    for shape in SHOWN:
        taken = bench.rounds(CASES[f"{shape}/compute"], ("polars", "duckdb", "cp"))
        found[shape] = {who: round(one.wall, 2) for who, one in taken.items()}
        print(shape, found[shape], flush=True)
    return found


def drawn(seconds: Mapping[str, Mapping[str, float]]) -> str:
    """The bars of each file as SVG, light or dark as the reader's screen is."""
    high = 50 + BLOCK * len(seconds)
    light, dark = (" ".join(f"--{name}: {pair[at]};" for name, pair in COLOURS.items()) for at in (0, 1))
    classes = "\n".join(f".{name} {{ fill: var(--{name}); }}" for name in COLOURS)
    parts = "\n".join(_parts(seconds))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {high}" width="{WIDE}" font-family="sans-serif" font-size="13" role="img">\n'
        "<title>Seconds of compute beside the same job in polars and duckdb, and beside cp</title>\n"
        f"<style>\nsvg {{ {light} }}\n@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}\n{classes}\n</style>\n"
        f'<rect class="paper" width="{WIDE}" height="{high}" rx="6"/>\n{parts}\n</svg>\n'
    )


def _parts(seconds: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    for at, (who, words) in enumerate(WHO.items()):
        x = 20 + 150 * at
        yield f'<rect class="{who}" x="{x}" y="17" width="12" height="12"/>'
        yield f'<text class="ink" x="{x + 18}" y="28">{escape(words)}</text>'
    yield f'<text class="ink" x="{WIDE - 20}" y="28" text-anchor="end">seconds</text>'
    longest = max(max(taken.values()) for taken in seconds.values())
    for at, (shape, taken) in enumerate(seconds.items()):
        top = 50 + BLOCK * at
        yield f'<text class="ink" x="20" y="{top + 28}">{escape(SHOWN[shape])}</text>'
        for row, who in enumerate(WHO):
            y = top + (BAR + 2) * row
            long = (WIDE - LEFT - 70) * taken[who] / longest
            yield f'<rect class="{who}" x="{LEFT}" y="{y}" width="{long:.1f}" height="{BAR}"/>'
            yield f'<text class="ink" font-size="11" x="{LEFT + long + 5:.1f}" y="{y + 10}">{taken[who]:.2f}</text>'


def main() -> None:
    """Measure, keep the numbers, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scratch", type=Path, default=Path("build/bench"))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--draw", action="store_true", help="only draw what was measured")
    given = parser.parse_args()
    if not given.draw:
        given.scratch.mkdir(parents=True, exist_ok=True)
        machine = (
            f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, median of {given.repeat} interleaved rounds"
        )
        found = {"machine": machine, "seconds": measure(given.scratch, given.repeat)}
        MEASURED.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    PICTURE.write_text(drawn(json.loads(MEASURED.read_text(encoding="utf-8"))["seconds"]), encoding="utf-8")


if __name__ == "__main__":
    main()
