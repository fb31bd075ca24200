"""A pipe whose groups arrive one after the other: each leaves when it is complete, with the numbers of the whole."""

from __future__ import annotations

import gzip
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.errors import DataError, GrpoError
from grpo_cli.runs.compute_stream import run
from grpo_cli.stats.document import document
from tests.support.command import adv, facts_of
from tests.support.drawn import examples
from tests.support.jobs import compute, job, rows_of


def lines(groups: str, **more: Any) -> bytes:
    """Groups of one letter for the key and a digit for each reward, as JSON lines."""
    rows = [{"prompt_id": group[0], "reward": int(digit), **more} for group in groups.split() for digit in group[1:]]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


class Arriving(io.BytesIO):
    """What comes in piece by piece, as each of them was written."""

    def __init__(self, parts: list[bytes]) -> None:
        super().__init__()
        self._parts = iter(parts)

    def read(self, size: int | None = -1, /) -> bytes:  # noqa: ARG002 - as much as was written
        return next(self._parts, b"")


def without_advantages(data: bytes) -> bytes:
    return re.sub(rb',"advantage":[-0-9.e]+', b"", data)


def streamed(data: bytes, *, pieces: int = 1, **options: Any) -> tuple[bytes, dict[str, Any]]:
    """What comes out of a stream that arrives in this many pieces."""
    step = max(1, len(data) // pieces)
    parts = [data[start : start + step] for start in range(0, len(data), step)]
    sink = io.BytesIO()
    facts = run(job("-", **({"group": "prompt_id"} | options)), Arriving(parts), sink)
    return sink.getvalue(), document(facts)


def whole(data: bytes, **options: Any) -> tuple[bytes, dict[str, Any]]:
    """What comes out of a file."""
    Path("in.jsonl").write_bytes(data)
    facts = compute("in.jsonl", output="out.jsonl", force=True, **options).facts
    return Path("out.jsonl").read_bytes(), facts


OF_BATCHES = [
    name for name, row in ESTIMATORS.items() if row.batch and not row.spans_batches and not ESTIMATORS.origin(name)
]


@given(
    groups=st.lists(st.text("0124", min_size=1, max_size=5), min_size=1, max_size=6),
    pieces=st.integers(1, 40),
    method=st.sampled_from(["grpo", "rloo", "maxrl"]),
)
@examples(15)
def test_a_stream_gives_the_bytes_of_the_whole(groups: list[str], pieces: int, method: str) -> None:
    data = lines(" ".join(map("".join, zip("abcdef", groups, strict=False))))
    got, facts = streamed(data, pieces=pieces, method=method)
    assert got == whole(data, method=method, singleton="zero")[0]
    assert facts["rows"] == len("".join(groups))
    assert facts["groups"] == len(groups)


def test_the_facts_of_a_stream_are_those_of_the_whole() -> None:
    data = lines("a011 b11 c00 d1 e55 f2 g01")  # what is skipped comes in several pieces
    _, of_file = whole(data, group="prompt_id")
    _, facts = streamed(data, pieces=7)
    names = "rows groups group_sizes singletons batches unscorable zero_variance status skipped kept plan"
    for name in names.split():
        assert facts[name] == of_file[name]
    assert facts["reward"]["mean"] == pytest.approx(of_file["reward"]["mean"])
    assert facts["reward"]["std"] == pytest.approx(of_file["reward"]["std"])
    assert facts["advantage"]["std"] == pytest.approx(of_file["advantage"]["std"])
    assert json.dumps(facts, allow_nan=False)


def test_a_group_leaves_while_the_next_one_is_still_coming() -> None:
    command = [sys.executable, "-m", "grpo_cli", "compute", "-", "--stream", "-g", "prompt_id", "-q"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines("a01 b1"))
        process.stdin.flush()
        first = process.stdout.readline() + process.stdout.readline()  # would block if nothing had left
        process.stdin.write(lines("b0"))
        process.stdin.close()
        rest = process.stdout.read()
    assert without_advantages(first) == lines("a01")
    assert without_advantages(rest) == lines("b10")


BATCHES = [{"scale": "batch"}, {"method": "dr-grpo", "whiten": "sample"}, *({"method": name} for name in OF_BATCHES)]


@pytest.mark.parametrize("options", BATCHES, ids=str)
def test_a_batch_of_a_stream_has_the_bytes_that_it_has_beside_others(options: Any) -> None:
    rewards = np.random.default_rng(6).normal(3, 2, 960)
    of_groups = np.repeat(range(120), 8)
    steps = np.repeat(range(6), [16, 224, 120, 280, 312, 8])
    frame = pl.DataFrame({"prompt_id": of_groups, "reward": rewards, "step": steps})
    data = frame.write_ndjson().encode()
    got, _ = streamed(data, batch_by="step", **options)
    assert got == whole(data, batch_by="step", **options)[0]


@pytest.mark.parametrize("pieces", [1, 9, 300])
def test_errors_name_the_line_of_the_stream(pieces: int) -> None:
    data = lines("a01 b10") + b"\n\r\n" + lines("c1") + b'{"prompt_id": "d", "reward": "good"}\n'
    with pytest.raises(DataError, match=r"^-:8: reward is 'good'"):
        streamed(data, pieces=pieces)
    back = lines("a01 b01") + b"\n\n" + lines("a1 c0")
    with pytest.raises(DataError, match=r"^-:7: prompt_id comes back after its group was complete"):
        streamed(back, pieces=pieces)


def test_every_byte_stays_where_it_was() -> None:
    data = b'\xef\xbb\xbf{"prompt_id":1 ,"reward":1e0}\r\n\n{ "reward" : 0.50, "prompt_id" : 1 }  \n \n{"prompt_id":2,"reward":1}'
    got, _ = streamed(data, pieces=4, scale="none")
    first = b'\xef\xbb\xbf{"prompt_id":1 ,"reward":1e0,"advantage":0.25}\r\n\n'
    rest = b'{ "reward" : 0.50, "prompt_id" : 1 ,"advantage":-0.25}  \n \n{"prompt_id":2,"reward":1,"advantage":0.0}'
    assert got == first + rest


def test_a_sampler_that_died_is_noticed_and_dropped_groups_are_left_out() -> None:
    with pytest.raises(DataError, match="b has 1 row, not 2"):
        streamed(lines("a01 b1"), expect_size=2)
    got, facts = streamed(lines("a11 b01"), zero_variance="drop", pieces=4)
    assert without_advantages(got) == lines("b01")
    assert facts["dropped_rows"] == 2


REFUSED = """\
-g prompt_id --scale batch | the plan needs a whole batch
-g prompt_id --method spo | needs a whole batch
--scale none | cannot look ahead to find the key
--reward rollouts[].r | reads rows, not paths into their lists; leave out --stream
-g prompt_id --group-within file | standard input is one file
-g prompt_id -o x.jsonl | --stream writes standard output
-g prompt_id --fail-on 'rows > 1' | --fail-on is checked before
-g prompt_id --duplicate --zero-variance drop | --duplicate samples from all groups
-g prompt_id --only | writes every line back
-g prompt_id --explain | --explain needs all groups
-g prompt_id --on-error skip | --on-error skip looks at all lines first
"""


@pytest.mark.parametrize("case", REFUSED.splitlines())
def test_what_needs_the_whole_input_is_refused_before_the_first_row(case: str) -> None:
    flags, message = case.split(" | ")
    done = adv(f"compute - --stream {flags}", stdin=lines("a01").decode())
    assert done.status == 2
    assert message in done.err
    assert done.out == ""


@pytest.mark.parametrize("options", [{"group": "prompt_id"}, {"group_size": 2}], ids=["key", "blocks"])
@pytest.mark.parametrize("end", [b"", b"\n", b" \n\n"])
def test_blank_lines_may_arrive_alone(options: Any, end: bytes) -> None:
    a = lines("a01")
    arriving = [b"\n", a[:40], a[40:], b"\n", b"\r\n", lines("b10")]
    if end:
        arriving.append(end)
    data = b"".join(arriving)
    sink = io.BytesIO()
    run(job("-", **options), Arriving(arriving), sink)
    once = io.BytesIO()
    run(job("-", **options), io.BytesIO(data), once)
    assert sink.getvalue() == once.getvalue()
    assert without_advantages(sink.getvalue()) == data


def test_a_short_last_block_can_be_dropped() -> None:
    data = lines("a01 b1")
    out, facts = streamed(data, group=[], group_size=2, partial="drop")
    assert without_advantages(out) == lines("a01")
    assert facts["rows"] == 2
    assert facts["dropped_rows"] == 1
    with pytest.raises(DataError, match="1 dropped: incomplete last block"):
        streamed(lines("b1"), group=[], group_size=2, partial="drop")


def test_a_group_that_comes_back_in_another_batch_is_an_error_as_of_a_file() -> None:
    one = lines("a01", step=1)
    two = lines("b01 a11", step=2)
    with pytest.raises(DataError, match=r"^-:5: prompt_id was in an earlier batch; .*add step to --group"):
        streamed(one + two, scale="batch", batch_by="step")
    out, _ = streamed(one + two, scale="batch", batch_by="step", group="prompt_id,step")
    assert without_advantages(out) == one + two


def test_a_key_of_the_rollout_is_a_warning() -> None:
    _, facts = streamed(lines("a0 b1"))
    assert any("every group has a single row" in warning for warning in facts["warnings"])
    _, meant = streamed(lines("a0 b1"), singleton="zero")
    assert meant["warnings"] == []


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"prompt_id,reward\na,1\n", "-:1: not JSON: expecting value at column 1; if the file is CSV or TSV"),
        (b"\xef\xbb\xbfPAR1....\n", "-:1: not JSON: expecting value at column 1; if the file is CSV or TSV"),
        (gzip.compress(b"{}", mtime=0), "plain JSON lines, not gzip; unpack them first; leave out --stream"),
        (b"(\xb5/\xfd..", "plain JSON lines, not zstd; unpack them first; leave out --stream"),
        (lines("a0") + b"xx\n", "; --on-error skip leaves such lines out, in commands that have it"),
        (b'{"prompt_id": "a", "reward": [1, 0]}\n', "-:1: reward is [1, 0], expected a number"),
        (b"", "-: no rows"),
    ],
)
def test_what_is_no_line_with_a_reward_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(GrpoError, match=re.escape(says)):
        streamed(data)


def test_a_warning_with_numbers_is_shown_once_and_says_that_it_is_of_the_first_block() -> None:
    group = '{{"prompt_id": {0}, "a": 0, "b": null}}\n{{"prompt_id": {0}, "a": 1, "b": 1}}\n'
    data = "".join(map(group.format, range(10_000))).encode()
    _, facts = streamed(data, reward=["a", "b"])
    (warning,) = facts["warnings"]
    assert warning.startswith("rows with only some of the rewards: ")
    assert warning.endswith(" (in the first such block of the stream)")


def test_rows_that_are_not_written_have_no_null_advantage() -> None:
    Path("in.csv").write_text("prompt_id,reward\na,1\na,1\na,\nb,1\nb,0\nb,\n")
    facts = facts_of("compute in.csv --missing exclude --zero-variance drop -o out.csv")
    assert facts["advantage"]["null"] == 1
    assert [row["advantage"] for row in rows_of("out.csv")].count(None) == 1
