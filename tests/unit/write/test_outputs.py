"""Where results go: names, refusals, columns, conversions, copies, gates, and files that change meanwhile."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from grpo_cli.errors import DataError, GateError, InputChanged, UnknownName, UsageError
from grpo_cli.write import write_outputs
from grpo_cli.write.verify import verify
from tests.support.command import adv
from tests.support.jobs import compute, look, rows_of, write

ROWS = [
    {"prompt_id": "a", "reward": 0.0, "text": "no"},
    {"prompt_id": "a", "reward": 2.0, "text": "yes"},
    {"prompt_id": "b", "reward": 5.0, "text": "é"},
    {"prompt_id": "b", "reward": 5.0, "text": None},
]
CENTRED = [-1.0, 1.0, 0.0, 0.0]
SUFFIXES = ["jsonl", "csv", "tsv", "parquet", "arrow"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def source(here: Path) -> Path:
    return write(here / "in.jsonl", ROWS)


def outputs(*inputs: Path | str, **options: Any) -> list[str]:
    return [str(name) for name in compute(*inputs, **options).facts["outputs"]]


def values(path: Path | str, column: str = "advantage") -> list[Any]:
    return list(read(path)[column])


def read(path: Path | str) -> pl.DataFrame:
    readers: dict[str, Callable[..., pl.DataFrame]] = {
        ".jsonl": pl.read_ndjson, ".csv": pl.read_csv, ".parquet": pl.read_parquet, ".arrow": pl.read_ipc,
        ".tsv": lambda p: pl.read_csv(p, separator="\t"),
    }  # fmt: skip
    path = Path(path)
    return readers[path.suffix](io.BytesIO(path.read_bytes()))


def made(suffix: str) -> Path:
    return write(Path(f"in.{suffix}"), ROWS)


def own(*names: str) -> list[Path]:
    """Files with these names, each with keys of its own."""
    return [write(Path(name), [{**row, "prompt_id": name} for row in ROWS]) for name in names]


def tree(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}


# --- names -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("in.jsonl", "in.advantages.jsonl"),
        ("run.step_1.jsonl", "run.step_1.advantages.jsonl"),
        ("deep/er/x.ndjson", "deep/er/x.advantages.ndjson"),
    ],
)
def test_without_a_name_the_output_is_written_beside_the_input(name: str, wanted: str, here: Path) -> None:
    assert outputs(write(Path(name), ROWS)) == [wanted]
    assert [row["advantage"] for row in rows_of(here / wanted)][2:] == [0.0, 0.0]


def test_a_file_name_is_taken_as_it_is_and_its_folder_must_be_there(source: Path, here: Path) -> None:
    with pytest.raises(UsageError, match="mkdir -p new/deep"):
        outputs(source, output="new/deep/out.jsonl", scale="none")
    Path("new/deep").mkdir(parents=True)
    assert outputs(source, output="new/deep/out.jsonl", scale="none") == ["new/deep/out.jsonl"]
    assert values(here / "new/deep/out.jsonl") == CENTRED


@pytest.mark.parametrize(("to", "exists"), [("out/", False), ("out/", True), ("out", True), ("more/out/", False)])
def test_into_a_directory_names_are_kept(to: str, *, exists: bool, source: Path) -> None:
    if exists:
        Path(to).mkdir()
    assert outputs(source, output=to) == [str(Path(to) / "in.jsonl")]


def test_into_a_directory_the_tree_below_the_common_parent_is_kept(here: Path) -> None:
    paths = own("r/1/a.jsonl", "r/2/a.jsonl", "r/b.jsonl")
    assert outputs(*paths, output="out/") == ["out/1/a.jsonl", "out/2/a.jsonl", "out/b.jsonl"]
    assert set(tree(here / "out")) == {"1/a.jsonl", "2/a.jsonl", "b.jsonl"}
    assert outputs(*paths[:2], output="flat/") == ["flat/1/a.jsonl", "flat/2/a.jsonl"]


def test_each_of_several_files_gets_an_output_beside_it_with_its_rows(here: Path) -> None:
    a = write(Path("a.jsonl"), ROWS[:3])
    b = write(Path("b.jsonl"), [{"prompt_id": "b", "reward": 1.0}, {"prompt_id": "c", "reward": 1.0}])
    assert outputs(a, b, group_within="input", method="dr-grpo") == ["a.advantages.jsonl", "b.advantages.jsonl"]
    assert values("a.advantages.jsonl") == [-1.0, 1.0, 2.0]
    assert values("b.advantages.jsonl") == [-2.0, 0.0]


def test_a_dash_writes_to_standard_output(source: Path, here: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert outputs(source, output="-", scale="none") == ["stdout"]
    assert [json.loads(line)["advantage"] for line in capfdbinary.readouterr().out.splitlines()] == CENTRED
    assert set(tree(here)) == {"in.jsonl"}


@pytest.mark.parametrize("to", ["-", "one.jsonl"])
def test_several_inputs_do_not_share_one_output(to: str, source: Path) -> None:
    other = write(Path("b.jsonl"), ROWS)
    with pytest.raises(UsageError, match=r"2 inputs cannot share.*-o DIRECTORY/"):
        compute(source, other, output=to, group_within="file")
    assert not Path("one.jsonl").exists()


@pytest.mark.parametrize("to", ["out.txt", "out", "out.xlsx"])
def test_a_name_without_a_known_suffix_is_refused(to: str, source: Path, here: Path) -> None:
    with pytest.raises(UsageError, match="unknown file format"):
        compute(source, output=to)
    assert set(tree(here)) == {"in.jsonl"}


def test_standard_input_is_the_only_input(source: Path) -> None:
    with pytest.raises(UsageError, match="standard input cannot be read together"):
        compute("-", source)


# --- nothing is overwritten --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"output": "in.advantages.jsonl"}, {"output": "in.advantages.jsonl", "dtype": "f32"}]
)
def test_an_output_that_exists_is_refused_without_force(options: dict[str, Any], source: Path) -> None:
    Path("in.advantages.jsonl").write_text("precious\n")
    with pytest.raises(UsageError, match=r"in\.advantages\.jsonl exists; add --force"):
        compute(source, **options)
    assert Path("in.advantages.jsonl").read_text() == "precious\n"
    compute(source, **options, force=True)
    assert len(rows_of(Path("in.advantages.jsonl"))) == 4


def test_one_of_several_outputs_that_exists_stops_the_run(here: Path) -> None:
    paths = own("a.jsonl", "b.jsonl")
    write(Path("b.advantages.jsonl"), [])
    with pytest.raises(UsageError, match=r"b\.advantages\.jsonl exists"):
        compute(*paths)
    assert not Path("a.advantages.jsonl").exists()


@pytest.mark.parametrize("name", ["in.jsonl", "./x/../in.jsonl", "symlink.jsonl", "hard.jsonl", "link/in.jsonl", "."])
@pytest.mark.parametrize("force", [False, True])
def test_an_input_is_never_overwritten(name: str, *, force: bool, source: Path) -> None:
    Path("x").mkdir()
    Path("symlink.jsonl").symlink_to(source)
    Path("hard.jsonl").hardlink_to(source)
    Path("link").symlink_to(source.parent, target_is_directory=True)
    before = source.read_bytes()
    with pytest.raises(UsageError, match="is an input: it is never overwritten") as raised:
        compute(source, output=name, force=force)
    assert raised.value.hint == "give another name with -o"
    assert source.read_bytes() == before


def test_an_output_may_not_be_another_input(source: Path) -> None:
    other = write(Path("out/in.jsonl"), ROWS)
    with pytest.raises(UsageError, match="is an input"):
        compute(source, other, output="out/", force=True, group_within="file")
    assert len(rows_of(other)) == 4
    assert "advantage" not in rows_of(other)[0]


def test_a_link_that_is_replaced_by_force_stays_a_link(source: Path) -> None:
    target = write(Path("old.jsonl"), [])
    Path("link.jsonl").symlink_to(target)
    with pytest.raises(UsageError, match="exists"):
        compute(source, output="link.jsonl")
    compute(source, output="link.jsonl", force=True)
    assert Path("link.jsonl").is_symlink()
    assert len(rows_of(target)) == 4


def test_a_folder_that_cannot_be_made_is_an_error_of_ours(source: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no directory in\.jsonl"):
        compute(source, output="in.jsonl/out.jsonl")


def test_a_dry_run_writes_nothing_and_needs_no_name(source: Path, here: Path) -> None:
    write(Path("in.advantages.jsonl"), [])
    before = tree(here)
    assert look(source).facts["outputs"] == []
    assert tree(here) == before


# --- columns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_column_stays_and_one_is_added_at_the_end(suffix: str, here: Path) -> None:
    path = made(suffix)
    (out,) = outputs(path, scale="none")
    assert read(out).columns == ["prompt_id", "reward", "text", "advantage"]
    assert read(out).drop("advantage").equals(read(path))
    assert values(out) == CENTRED


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_column_that_exists_is_an_error_with_both_ways_out(suffix: str, here: Path) -> None:
    path = write(Path(f"in.{suffix}"), [{"advantage": 9.0, **row} for row in ROWS])
    with pytest.raises(DataError) as raised:
        compute(path)
    assert "already has a column 'advantage'" in raised.value.message
    assert raised.value.hint == "--replace overwrites it; --column NAME gives another name"
    assert outputs(path, output=f"named.{suffix}", column="adv2", scale="none") == [f"named.{suffix}"]
    assert read(f"named.{suffix}").columns == ["advantage", "prompt_id", "reward", "text", "adv2"]
    assert values(f"named.{suffix}", "adv2") == CENTRED
    assert values(f"named.{suffix}") == [9.0] * 4
    compute(path, output=f"anew.{suffix}", replace=True, scale="none")
    assert sorted(read(f"anew.{suffix}").columns) == ["advantage", "prompt_id", "reward", "text"]
    assert values(f"anew.{suffix}") == CENTRED


def test_the_columns_of_facts_must_be_free_too(source: Path) -> None:
    path = write(Path("f.jsonl"), [{**row, "advantage_std": 1} for row in ROWS])
    with pytest.raises(DataError, match="already has a column 'advantage_std'"):
        compute(path, facts=True)
    assert outputs(path) == ["f.advantages.jsonl"]


def test_a_column_that_exists_in_any_of_several_files_is_an_error(source: Path) -> None:
    other = write(Path("b.jsonl"), [{"prompt_id": "z", "reward": 1, "advantage": 1}])
    with pytest.raises(DataError, match=r"b\.jsonl already has a column"):
        compute(source, other)


def test_a_column_has_a_name(source: Path) -> None:
    with pytest.raises(UsageError, match="a column without a name"):
        compute(source, column="")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_facts_describe_the_group_of_every_row(suffix: str, here: Path) -> None:
    (out,) = outputs(made(suffix), facts=True, column="adv", scale="none")
    data = read(out)
    assert data.columns[-5:] == ["adv", "adv_mean", "adv_std", "adv_size", "adv_status"]
    assert data["adv_mean"].to_list() == [1.0, 1.0, 5.0, 5.0]
    assert data["adv_std"].to_list() == pytest.approx([2**0.5] * 2 + [0.0] * 2)
    assert data["adv_size"].to_list() == [2] * 4
    assert data["adv_status"].to_list() == ["scored"] * 4


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_only_writes_the_key_the_rewards_and_what_was_computed(suffix: str, here: Path) -> None:
    (out,) = outputs(made(suffix), only=True, scale="none")
    data = read(out)
    assert data.columns == ["prompt_id", "reward", "advantage"]
    assert data["prompt_id"].to_list() == list("aabb")
    assert data["advantage"].to_list() == CENTRED


def test_only_ignores_a_column_of_the_input_and_keeps_the_facts(here: Path) -> None:
    path = write(Path("a.jsonl"), [{**row, "advantage": 7} for row in ROWS])
    (out,) = outputs(path, only=True, facts=True, scale="none")
    facts = [f"advantage_{fact}" for fact in ("mean", "std", "size", "status")]
    assert read(out).columns == ["prompt_id", "reward", "advantage", *facts]
    assert values(out) == CENTRED


def test_only_without_a_key_has_no_key(source: Path) -> None:
    (out,) = outputs(source, only=True, group_size=2)
    assert read(out).columns == ["reward", "advantage"]


@pytest.mark.parametrize("to", ["out.jsonl", "out.parquet"])
def test_an_advantage_that_is_too_large_for_its_type_is_an_error(to: str, here: Path) -> None:
    path = write(Path("in.jsonl"), [{"prompt_id": 1, "reward": reward} for reward in (1e50, 0.0)])
    said = r"the advantage 5e\+49 .of the reward 1e\+50. does not fit in 32 bits; use --dtype f64"
    with pytest.raises(DataError, match=said):
        compute(path, dtype="f32", method="dr-grpo", output=to)
    assert not Path(to).exists()
    compute(path, method="dr-grpo", output=to)


@pytest.mark.parametrize(("dtype", "wanted"), [("f64", pl.Float64), ("f32", pl.Float32)])
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_the_type_of_the_column(suffix: str, dtype: str, wanted: Any, here: Path) -> None:
    (out,) = outputs(made(suffix), dtype=dtype, facts=True)
    assert read(out)["advantage"].dtype == wanted
    assert read(out)["advantage_mean"].dtype == pl.Float64


# --- rows --------------------------------------------------------------------------------------------------

PAIRS = [(a, b) for a in SUFFIXES for b in SUFFIXES if a != b]


@pytest.mark.parametrize(("suffix", "to"), PAIRS)
def test_the_suffix_of_the_output_converts(suffix: str, to: str, here: Path) -> None:
    (out,) = outputs(made(suffix), output=f"out.{to}", scale="none")
    data = read(out)
    assert data.columns == ["prompt_id", "reward", "text", "advantage"]
    assert data["advantage"].cast(pl.Float64).to_list() == CENTRED
    assert data["prompt_id"].to_list() == list("aabb")
    assert data["text"].to_list()[:3] == ["no", "yes", "é"]


@pytest.mark.parametrize("to", [None, "csv", "parquet"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rows_of_dropped_groups_are_left_out(suffix: str, to: str | None, here: Path) -> None:
    path = made(suffix)
    target = f"out.{to or suffix}"
    done = compute(path, output=target, zero_variance="drop", scale="none")
    assert read(target)["text"].to_list() == ["no", "yes"]
    assert values(target) == [-1.0, 1.0]
    assert done.facts["dropped_rows"] == 2
    assert done.facts["rows"] == 4


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_when_nothing_is_kept_a_file_without_rows_is_left(suffix: str, here: Path) -> None:
    compute(made(suffix), output=f"out.{suffix}", zero_variance="drop", std_threshold=100)
    if suffix == "jsonl":
        assert Path("out.jsonl").read_bytes() == b""
    else:
        assert read(f"out.{suffix}").height == 0
        assert "advantage" in read(f"out.{suffix}").columns


def test_dropped_rows_of_several_files_leave_each_its_own(here: Path) -> None:
    a = write(Path("a.jsonl"), ROWS[2:])
    b = write(Path("b.jsonl"), [{**row, "prompt_id": "z"} for row in ROWS[:2]])
    compute(a, b, zero_variance="drop", scale="none", output="out/")
    assert Path("out/a.jsonl").read_bytes() == b""
    assert values("out/b.jsonl") == [-1.0, 1.0]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "arrow"])
def test_a_file_that_loses_no_row_keeps_every_byte_where_another_one_does(suffix: str, here: Path) -> None:
    full, short = (
        write(Path(f"{name}.{suffix}"), [{"prompt_id": key, "reward": reward} for key, reward in rows])
        for name, rows in (("a", [("a", 0), ("a", 1)]), ("b", [("b", 1), ("b", 1), ("c", 0), ("c", 1)]))
    )
    if suffix in {"jsonl", "csv"}:
        full.write_bytes(full.read_bytes().removesuffix(b"\n"))  # no last line feed
    compute(full, short, zero_variance="drop", scale="none", output="out/")
    assert len(read(Path("out") / short.name)) == 2
    assert verify(Path("out") / full.name, full).added == ("advantage",)
    old = full.read_bytes()
    new = (Path("out") / full.name).read_bytes()
    if suffix in {"jsonl", "csv"}:
        assert not new.endswith(b"\n")
    elif suffix == "parquet":
        footer = len(old) - 8 - int.from_bytes(old[-8:-4], "little")
        assert new[:footer] == old[:footer]


def test_a_remainder_that_is_dropped_is_left_out_of_the_right_places(here: Path) -> None:
    path = write(Path("a.jsonl"), [{"k": key, "reward": r} for key, r in zip("xxxyy", (0, 2, 9, 1, 5), strict=True)])
    (out,) = outputs(path, group="k", group_size=2, partial="drop", method="dr-grpo")
    assert [(row["k"], row["advantage"]) for row in rows_of(Path(out))] == [("x", -1), ("x", 1), ("y", -2), ("y", 2)]


# --- copies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [None, "csv"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_dropped_groups_are_refilled_with_marked_copies(suffix: str, to: str | None, here: Path) -> None:
    target = f"out.{to or suffix}"
    compute(made(suffix), output=target, zero_variance="drop", duplicate=True, scale="none", column="adv")
    data = read(target)
    assert data["text"].to_list() == ["no", "yes", "no", "yes"]
    assert data["adv"].to_list() == [-1.0, 1.0, -1.0, 1.0]
    assert data["adv_copy"].cast(pl.String).to_list() == ["false", "false", "true", "true"]


def test_the_seed_chooses_the_copies_and_the_same_seed_the_same(here: Path) -> None:
    data = [{"prompt_id": k // 2, "reward": float(k % 2) * (k < 24)} for k in range(48)]
    path = write(Path("a.jsonl"), data)

    def copies(seed: int) -> list[int]:
        compute(path, output=f"{seed}.jsonl", zero_variance="drop", duplicate=True, seed=seed, force=True)
        return [row["prompt_id"] for row in rows_of(Path(f"{seed}.jsonl")) if row["advantage_copy"]]

    assert len(copies(0)) == 24
    assert copies(0) == copies(0)
    assert copies(0) != copies(1)


def test_when_nothing_was_dropped_nothing_is_copied(here: Path) -> None:
    (out,) = outputs(write(Path("a.jsonl"), ROWS[:2]), zero_variance="drop", duplicate=True)
    assert values(out, "advantage_copy") == [False, False]


@pytest.mark.parametrize(
    "options",
    [{}, {"zero_variance": "keep"}, {"zero_variance": "null"}, {"set": "groups.small=drop", "min_group_size": 3}],
    ids=str,
)
def test_copies_are_refused_where_constant_groups_are_not_dropped(options: dict[str, Any], source: Path) -> None:
    with pytest.raises(UsageError, match="add --zero-variance drop"):
        compute(source, duplicate=True, **options)


def test_copies_are_refused_for_several_files_and_where_the_mark_exists(source: Path) -> None:
    (other,) = own("b.jsonl")
    with pytest.raises(UsageError, match="run it on one file at a time"):
        compute(source, other, duplicate=True, zero_variance="drop", output="out/")
    marked = write(Path("m.jsonl"), [{**row, "advantage_copy": 1} for row in ROWS])
    with pytest.raises(DataError, match="already has a column 'advantage_copy'"):
        compute(marked, duplicate=True, zero_variance="drop")


# --- gates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "gate", ["zero_variance_share > 0.4", "rows == 4 and groups == 2", "reward_max >= 5", "not dropped_rows > 0"]
)
def test_a_gate_that_holds_leaves_nothing_behind(gate: str, source: Path, here: Path) -> None:
    before = tree(here)
    with pytest.raises(GateError, match="holds, nothing was written") as raised:
        compute(source, gate=gate, output="out.jsonl")
    assert raised.value.status == 3
    assert tree(here) == before
    assert not Path("new").exists()


@pytest.mark.parametrize("gate", ["zero_variance_share > 0.5", "rows != 4", "unscorable > 0", "reward_std < 0"])
def test_a_gate_that_does_not_hold_lets_the_run_pass(gate: str, source: Path) -> None:
    assert outputs(source.name, gate=gate) == ["in.advantages.jsonl"]


@pytest.mark.parametrize(
    ("gate", "options", "seen"),
    [
        ("zero_variance_share >= 0.5 and rows > 1", {}, "zero_variance_share is 0.5, rows is 4"),
        ("dropped_rows >= 2", {"zero_variance": "drop"}, "dropped_rows is 2"),
    ],
)
def test_a_gate_says_what_it_saw_in_its_own_order(gate: str, options: dict[str, Any], seen: str, source: Path) -> None:
    with pytest.raises(GateError) as raised:
        compute(source, gate=gate, **options)
    assert raised.value.hint == seen


def test_a_gate_on_an_unknown_quantity_is_a_usage_error_and_writes_nothing(source: Path, here: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'zero_variance_share'"):
        compute(source, gate="zero_varianc_share > 0")
    assert set(tree(here)) == {"in.jsonl"}


# --- a file that changes -----------------------------------------------------------------------------------


def appended(path: Path) -> None:
    with path.open("a") as handle:
        handle.write(json.dumps(ROWS[0]) + "\n")


def replaced(path: Path) -> None:
    content = path.read_bytes()
    path.rename(path.with_suffix(".old"))
    path.write_bytes(content)


def rewritten(path: Path) -> None:
    content = path.read_bytes().replace(b"yes", b"YES")
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))


def removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [appended, replaced, rewritten, removed])
@pytest.mark.parametrize("when", ["computing", "writing"])
@pytest.mark.parametrize("options", [{}, {"only": True}, {"output": "out.csv"}], ids=str)
def test_a_file_that_changes_between_the_readings_stops_the_run(
    change: Callable[[Path], None], when: str, options: dict[str, Any], source: Path, here: Path
) -> None:
    def meanwhile(phase: str, *_: object) -> None:
        if phase == when:
            change(source)

    with pytest.raises(InputChanged, match=r"in\.jsonl: the file changed .* nothing was written") as raised:
        compute(source, phase=meanwhile, **options)
    assert raised.value.status == 1
    assert set(tree(here)) <= {"in.jsonl", "in.old"}


def test_two_names_of_one_file_are_changed_in_place_one_after_the_other(here: Path) -> None:
    write(Path("a.jsonl"), ROWS)
    Path("b.jsonl").hardlink_to("a.jsonl")
    compute("a.jsonl", "b.jsonl", in_place=True, group_within="file")
    assert [len(rows_of(Path(name))) for name in ("a.jsonl", "b.jsonl")] == [len(ROWS)] * 2


@pytest.mark.parametrize("victim", [0, 1])
def test_of_several_files_one_that_changes_stops_all(victim: int, here: Path) -> None:
    paths = own("a.jsonl", "b.jsonl")
    with pytest.raises(InputChanged, match="nothing was written"):
        compute(*paths, output="out/", phase=lambda phase, *_: appended(paths[victim]) if phase == "writing" else None)
    assert tree(here / "out") == {}


def test_the_phases_of_a_run_come_in_order(source: Path) -> None:
    seen: list[tuple[str, int]] = []

    def phase(text: str, done: int = 0, *_: Any) -> None:
        seen.append((text.partition(":")[0], done))

    compute(source, phase=phase)
    assert list(dict(seen)) == ["reading", "grouping and computing", "computing", "writing"]
    known = [done for text, done in seen if text in {"reading", "grouping and computing"}]
    assert known == sorted(known)
    assert known[-1] == 70


def test_a_file_that_changes_after_others_were_written_says_how_many(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = own("a.jsonl", "b.jsonl", "c.jsonl")
    actual = write_outputs.write_one

    def write_one(output: Any, writing: Any) -> Any:
        if writing.table.name.endswith("b.jsonl"):
            paths[1].write_text("changed")
        return actual(output, writing)

    monkeypatch.setattr(write_outputs, "write_one", write_one)
    with pytest.raises(InputChanged, match=r"b\.jsonl: .* 1 of 3 outputs had been written, the others were not"):
        compute(*paths, output="out/")
    assert [*tree(here / "out")] == ["a.jsonl"]


def test_a_misspelt_quantity_of_a_formula_is_named_before_an_output_that_exists(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"prompt_id": 1, "reward": 1}\n{"prompt_id": 1, "reward": 0}\n')
    (tmp_path / "out.jsonl").write_text("mine")
    done = adv("compute", "in.jsonl", "--expr", "reward - meann", "-o", "out.jsonl", cwd=tmp_path)
    assert done.status == 2
    assert done.err == "error: no quantity named 'meann'; did you mean 'mean'?\n"
    assert (tmp_path / "out.jsonl").read_text() == "mine"
