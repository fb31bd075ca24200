"""Lists of log-probabilities, beside polars scripts that make the same reductions: wall time and peak memory of whole processes.

    python -m benchmarks.token_logprobs --scratch DIR --rows 100000

Rows of 1,000 tokens with two lists each, as Parquet (float32) and as JSON lines. `inspect` reduces them over the file and by step, and so
does the script. `inspect-sums` is the same command beside a script that leaves out what makes polars hold all ratios: quantiles and
sequence sizes. `compute` subtracts a KL (k3, sum) and writes the file with a column more; the script writes it with polars.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

TOKENS: Final = 1_000
AT_ONCE: Final = 1_000
_INSPECT: Final = (
    "inspect",
    "--group",
    "prompt_id",
    "--by",
    "step",
    "--token-logprobs",
    "new",
    "--old-token-logprobs",
    "old",
    "--json",
)
TOOL: Final[dict[str, tuple[str, ...]]] = {
    "inspect": _INSPECT,
    "inspect-sums": _INSPECT,
    "compute": (
        "compute", "--group", "prompt_id", "--method", "rloo", "--kl-from", "new,old", "--kl-estimator", "k3", "--kl-reduce", "sum",
        "--kl-coef", "0.05", "--quiet", "--force", "-o",
    ),
}  # fmt: skip


def make(folder: Path, rows: int) -> list[Path]:
    """Write both files, unless they are there."""
    import numpy as np
    import polars as pl
    import pyarrow.parquet as pq

    paths = [folder / f"logprobs-{rows}.{suffix}" for suffix in ("parquet", "jsonl")]
    if all(path.exists() for path in paths):
        return paths
    rng, writer = np.random.default_rng(0), None
    with paths[1].open("wb") as lines:
        for start in range(0, rows, AT_ONCE):
            at = np.arange(start, min(start + AT_ONCE, rows))
            old = -rng.exponential(0.5, (len(at), TOKENS)).astype(np.float32)
            new = old + rng.normal(0, 0.05, old.shape).astype(np.float32)
            lists = [pl.Series(name, values).arr.to_list() for name, values in (("new", new), ("old", old))]
            numbers = {
                "prompt_id": at // 8,
                "step": at * 50 // rows,
                "reward": rng.integers(0, 2, len(at)).astype(float),
            }
            frame = pl.DataFrame(numbers).with_columns(lists)
            table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
            writer = writer or pq.ParquetWriter(paths[0], table.schema, use_dictionary=False)
            writer.write_table(table)
            frame.write_ndjson(lines)
    if writer is not None:
        writer.close()
    return paths


def peer(job: str, path: str, out: str) -> None:
    """The same by hand."""
    import polars as pl

    lists = pl.List(pl.Float64)
    schema: dict[str, Any] = {"prompt_id": pl.Int64, "step": pl.Int64, "reward": pl.Float64, "new": lists, "old": lists}
    lazy = pl.scan_parquet(path) if path.endswith(".parquet") else pl.scan_ndjson(path, schema=schema)
    if job.startswith("inspect"):
        narrow = lazy.select("prompt_id", "step", "reward").collect()
        signs = narrow.select((pl.col("reward") - pl.col("reward").mean().over("prompt_id")).sign()).to_series()
        log, ratio = pl.col("log"), pl.col("log").exp()
        facts = {
            "k1": -log.mean(), "k2": (log * log).mean() / 2, "k3": (ratio - 1 - log).mean(), "mean": ratio.mean(),
            "above": (ratio > 1.2).mean(), "far_above": (ratio > 2).mean(), "below": (ratio < 0.8).mean(), "far_below": (ratio < 0.5).mean(),
            "cut": ((ratio > 1.2) & (pl.col("sign") > 0)).mean(), "cut_below": ((ratio < 0.8) & (pl.col("sign") < 0)).mean(),
            "ess": ratio.sum() ** 2 / (ratio * ratio).sum() / pl.len(),
        }  # fmt: skip
        if job == "inspect":
            facts |= {f"p{share}": log.quantile(share / 100).exp() for share in (1, 5, 50, 95, 99)}
        tokens = (
            lazy.select("step", "new", "old").with_columns(sign=signs).with_row_index("row").explode("new", "old")
            .select("row", "step", "sign", log=pl.col("new").cast(pl.Float64) - pl.col("old"))
        )  # fmt: skip
        extra = [tokens.select(**facts), tokens.group_by("row", "step").agg(log.sum())] if job == "inspect" else []
        sums, *more = pl.collect_all([tokens.group_by("step").agg(**facts), *extra], engine="streaming")
        if more:
            weight = (log - log.max()).exp()
            sizes = more[1].group_by("step").agg(weight.sum() ** 2 / (weight**2).sum() / pl.len())
            sys.stdout.write(f"{more[0].row(0)} {sizes.height}\n")
        sys.stdout.write(f"{sums['k3'].to_list()}\n")
        return
    log = pl.col("new").cast(lists) - pl.col("old").cast(lists)
    each = log.list.eval((-pl.element()).exp() - 1 + pl.element()).list.sum()
    shaped = lazy.with_columns(shaped=pl.col("reward") - 0.05 * each)
    n, total = pl.len().over("prompt_id"), pl.col("shaped").sum().over("prompt_id")
    scored = shaped.select("shaped", "prompt_id").collect(engine="streaming")
    scored = scored.select(advantage=pl.col("shaped") - (total - pl.col("shaped")) / (n - 1))
    whole = lazy.with_columns(scored["advantage"])
    sink = whole.sink_parquet if path.endswith(".parquet") else whole.sink_ndjson
    sink(out)


def measured(words: list[str]) -> tuple[float, float]:
    """Seconds, and the peak in MB."""
    start = time.perf_counter()
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{words} failed")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    """Print a line for each job and format."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path, default=Path("/tmp"))  # noqa: S108
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", nargs=3, metavar=("JOB", "FILE", "OUT"))
    given: Any = parser.parse_args()
    if given.peer:
        peer(*given.peer)
        return
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"from benchmarks.token_logprobs import make, Path; make(Path({str(given.scratch)!r}), {given.rows})",
        ],
        check=True,
    )
    sys.stdout.write("job          format   wall s  peak MB  peer s  peer MB  wall / peer\n")
    for suffix in ("parquet", "jsonl"):
        path = str(given.scratch / f"logprobs-{given.rows}.{suffix}")
        for job, words in TOOL.items():
            out = str(given.scratch / f"logprobs-out.{suffix}")
            tool = [sys.executable, "-m", "grpo_cli", words[0], path, *words[1:], *([out] if words[-1] == "-o" else [])]
            by_hand = [sys.executable, "-m", "benchmarks.token_logprobs", "--peer", job, path, out]
            pairs = [(measured(tool), measured(by_hand)) for _ in range(given.rounds)]
            ours, theirs = zip(*pairs, strict=True)
            wall, other = (statistics.median(seconds for seconds, _ in runs) for runs in (ours, theirs))
            peaks = [max(peak for _, peak in runs) for runs in (ours, theirs)]
            said = f"{wall:6.2f}  {peaks[0]:7.0f}  {other:6.2f}  {peaks[1]:7.0f}  {wall / other:11.2f}"
            sys.stdout.write(f"{job:<12} {suffix:<8} {said}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
