"""The same rows give the same bits, from every format and by every way that they can come in."""

from __future__ import annotations

import math
import random
import shutil
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any, Final

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import grpo_cli
from tests.support.command import Done, adv
from tests.support.drawn import examples
from tests.support.jobs import grouped, rows_of, write

Row = dict[str, Any]
Table = list[Row]

# Text that every format can store: an empty cell of CSV is no text, and a line feed in a cell may change.
TEXTS: Final = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=12).map(lambda text: f"t{text}")
REWARDS: Final = st.one_of(
    st.sampled_from([0.0, 1.0, -0.0, 0.1, 1e9, 1e9 + 1, 1e-300, 5e-324, 1e15, 1 / 3]),
    st.floats(-1e6, 1e6),
    st.integers(-(10**6), 10**6).map(float),
)
KEYS: Final = st.one_of(
    st.lists(TEXTS, min_size=1, max_size=5, unique=True),
    st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=5, unique=True),
)
ALONE: Final = ("", "--method rloo", "--method mc-grpo")  # no group needs to know of the others
PLANS: Final = (*ALONE, "--method james-stein", "--scale batch", "--method dr-grpo --whiten sample")
KINDS: Final = ("jsonl", "jsonl.gz", "jsonl.zst", "json", "csv", "tsv", "parquet", "arrow")
NESTED: Final = [kind for kind in KINDS if kind not in {"csv", "tsv"}]  # they have fields in fields, and lists


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Rows whose groups stand one after the other; the first one has two at least, for groups of one alone are refused."""
    rows = Table()
    for key in draw(KEYS):
        size = draw(st.integers(1 if rows else 2, 6))
        rows += [{"prompt_id": key, "reward": draw(REWARDS), "text": draw(TEXTS)} for _ in range(size)]
    return rows


@contextmanager
def fresh() -> Iterator[None]:
    """An example runs in an empty folder."""
    with tempfile.TemporaryDirectory() as name, chdir(name):
        yield


def advantages_in(name: str | Path) -> list[float | None]:
    return [row["advantage"] for row in rows_of(name, ["advantage"])]


def bits(values: Sequence[float | None]) -> bytes:
    """The bits of the numbers; NaN, which is null in JSON, has those of one NaN."""
    return struct.pack(f"<{len(values)}d", *(math.nan if one is None or one != one else one for one in values))  # noqa: PLR0124


def run(line: str, stdin: str = "") -> Done:
    done = adv(f"compute {line} -q --group-within input", stdin=stdin)
    assert (done.status, done.err) == (0, ""), done
    return done


def computed(source: str, output: str, plan: str = "") -> bytes:
    """The bits of the advantages that are written."""
    run(f"{source} -o {output} --force {plan}")
    return bits(advantages_in(output))


@given(table=tables(), plan=st.sampled_from(PLANS), order=st.none() | st.randoms(use_true_random=False))
@examples(4)
def test_every_format_and_every_way_in_give_the_same_bits(table: Table, plan: str, order: random.Random | None) -> None:
    found = {}
    if order is not None:
        order.shuffle(table)
    with fresh():
        for kind in KINDS:
            write(f"in.{kind}", table)
            found[kind] = computed(f"in.{kind}", f"out.{kind}", plan)
            if kind != "json":  # what is converted to .json is lines
                found[f"jsonl to {kind}"] = computed("in.jsonl", f"converted.{kind}", plan)
            shutil.copy(f"in.{kind}", f"here.{kind}")
            run(f"here.{kind} --in-place {plan}")
            found[f"{kind} in place"] = bits(advantages_in(f"here.{kind}"))
        text = Path("in.jsonl").read_text()
        found["standard input"] = bits([row["advantage"] for row in run(f"- {plan}", stdin=text).rows])
        if order is None and plan in ALONE:
            streamed = adv(f"compute - --stream -g prompt_id -q {plan}", stdin=text)
            assert (streamed.status, streamed.err) == (0, ""), streamed
            found["stream"] = bits([row["advantage"] for row in streamed.rows])
        found["shards"] = bits(sharded(table, plan))
        if order is None:
            found["lists"] = long(table, plan)
    words = plan.replace("--", "").split()
    options: dict[str, Any] = dict(zip(words[::2], words[1::2], strict=True))
    found["Python"] = bits(grpo_cli.advantages(pl.DataFrame(table), **options).to_list())
    different = [name for name, values in found.items() if values != found["jsonl"]]
    assert not different, (plan, different)


def sharded(table: Table, plan: str) -> list[float | None]:
    """The advantages where the rows are cut anywhere into three files."""
    third = -(-len(table) // 3)
    names = [f"{at}.parquet" for at in range(0, len(table), third)]
    for at, name in enumerate(names):
        write(f"shards/{name}", table[at * third : at * third + third])
    batch = adv(f"compute shards -o shards.out/ -q --group-within input --batch-by input {plan}")
    if batch.status:  # the plan has no number of the batch, and the option is refused
        assert "--batch-by has no effect: no number depends on the batch" in batch.err
        run(f"shards -o shards.out/ {plan}")
    return [one for name in names for one in advantages_in(f"shards.out/{name}")]


def long(table: Table, plan: str) -> bytes:
    """What --long writes of a record for each group, which has lists."""
    records = [
        {"prompt": str(key), "completions": [row["text"] for row in rows], "rewards": [row["reward"] for row in rows]}
        for (key,), rows in grouped(table, "prompt_id").items()
    ]
    write("lists.jsonl", records)
    return computed("lists.jsonl --long", "long.jsonl", plan)


@given(table=tables(), plan=st.sampled_from(PLANS))
@examples(4)
def test_a_key_inside_of_another_column_gives_the_same_bits(table: Table, plan: str) -> None:
    inside = [
        {"about": {"task": {"id": row["prompt_id"]}, "n": at}, "reward": row["reward"]} for at, row in enumerate(table)
    ]
    with fresh():
        write("flat.jsonl", table)
        wanted = computed("flat.jsonl", "flat.out.jsonl", plan)
        for kind in NESTED:
            write(f"in.{kind}", inside)
            assert computed(f"in.{kind} -g about.task.id", f"out.{kind}", plan) == wanted, kind


# --- --pick and --per-token ------------------------------------------------------------------------------------------


PICKS: Final = (
    *(f"select {{}} --per-group 2 --pick {pick} -o" for pick in ("best", "worst", "spread", "random")),
    "export {} --to sft --pick best -o", "export {} --to sft --pick all-above -o",
)  # fmt: skip


@given(table=tables(), picking=st.sampled_from(PICKS))
@examples(6)
def test_the_same_rows_are_picked_from_every_format(table: Table, picking: str) -> None:
    texts = [{"prompt": f"p{row['prompt_id']}", "completion": f"{at} {row['text']}"} for at, row in enumerate(table)]
    rows = [{"prompt_id": row["prompt_id"], **text, "reward": row["reward"]} for row, text in zip(table, texts, strict=True)]  # fmt: skip
    found = dict[str, Any]()
    with fresh():
        for kind in KINDS:
            write(f"in.{kind}", rows)
            out = f"out.{kind}" if picking.startswith("select") and kind != "json" else f"out.{kind}.jsonl"
            done = adv(f"{picking.format(f'in.{kind}')} {out} --group-within input -q")
            found[kind] = done.status, rows_of(out) if done.status == 0 else None
    assert found["jsonl"][0] in {0, 1}, done  # 1: no group has rows to pick
    different = [kind for kind, rows in found.items() if rows != found["jsonl"]]
    assert not different, (picking, {kind: found[kind] for kind in (different[0], "jsonl")})


@given(table=tables(), data=st.data(), plan=st.sampled_from([*ALONE, "--method dr-grpo"]))
@examples(4)
def test_every_format_gives_tokens_the_same_bits(table: Table, data: st.DataObject, plan: str) -> None:
    counts = [data.draw(st.integers(0, 5)) for _ in table]
    rows = [
        {**row, "n": count, "ids": list(range(count)), "mask": [at % 2 for at in range(count)]}
        for row, count in zip(table, counts, strict=True)
    ]
    rows[0].update(n=2, ids=[7, 8], mask=[0, 1])  # a column of empty lists has no type
    with fresh():
        for kind in NESTED:
            write(f"in.{kind}", rows)
        run(f"in.jsonl -o rows.jsonl {plan}")
        each = [*zip(advantages_in("rows.jsonl"), rows, strict=True)]
        all_tokens = [bits([one] * row["n"]) for one, row in each]
        own_tokens = [bits([one if own else 0.0 for own in row["mask"]]) for one, row in each]
        for words, wanted in (("--length-column n", all_tokens), ("--tokens ids", all_tokens), ("--mask mask", own_tokens)):  # fmt: skip
            for kind in NESTED:
                run(f"in.{kind} -o out.{kind} --force --per-token {words} {plan}")
                found = [row["advantage"] for row in rows_of(f"out.{kind}")]
                assert list(map(bits, found)) == wanted, (kind, words)
