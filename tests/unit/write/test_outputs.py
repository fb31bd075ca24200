"""Where results go: names, refusals, columns, conversions, copies, gates, and files that change meanwhile."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import polars as pl
import pytest

from grpo_cli.errors import DataError, GateError, InputChanged, UnknownName, UsageError
from grpo_cli.files import atomic
from grpo_cli.write import write_outputs
from grpo_cli.write.outputs import Output, refuse_path
from grpo_cli.write.verify import verify
from tests.support.command import adv, files, ran
from tests.support.jobs import compute, look, rows_of, write

LINES = """\
{"prompt_id": "a", "reward": 0.0, "text": "no"}
{"prompt_id": "a", "reward": 2.0, "text": "yes"}
{"prompt_id": "b", "reward": 5.0, "text": "é"}
{"prompt_id": "b", "reward": 5.0, "text": null}
"""
ROWS = [json.loads(line) for line in LINES.splitlines()]
CENTRED = [-1.0, 1.0, 0.0, 0.0]
SUFFIXES = ["jsonl", "csv", "tsv", "parquet", "arrow"]


def made(name: str, text: str = LINES) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def source(here: None) -> Path:
    return made("in.jsonl")


def outputs(*inputs: Path | str, **options: Any) -> list[str]:
    return [str(name) for name in compute(*inputs, **options).facts["outputs"]]


def columns(path: Path | str) -> list[str]:
    return [*rows_of(path)[0]]


def values(path: Path | str, column: str = "advantage") -> list[Any]:
    return [row[column] for row in rows_of(path)]


def own(*names: str) -> list[Path]:
    """Files with these names, each with keys of its own."""
    return [made(name, LINES.replace('_id": "', f'_id": "{name} ')) for name in names]


# --- names -------------------------------------------------------------------------------------------------


def test_without_a_name_the_output_is_written_beside_the_input() -> None:
    assert outputs(made("deep/run.step_1.ndjson"), scale="none") == ["deep/run.step_1.advantages.ndjson"]
    assert values("deep/run.step_1.advantages.ndjson") == CENTRED


def test_a_file_name_is_taken_as_it_is_and_its_folder_must_be_there(source: Path) -> None:
    with pytest.raises(UsageError, match="mkdir -p new/deep"):
        outputs(source, output="new/deep/out.jsonl", scale="none")
    Path("new/deep").mkdir(parents=True)
    assert outputs(source, output="new/deep/out.jsonl", scale="none") == ["new/deep/out.jsonl"]
    assert values("new/deep/out.jsonl") == CENTRED


@pytest.mark.parametrize("to", ["out/", "there/", "there", "more/out/"])
def test_into_a_directory_names_are_kept(to: str, source: Path) -> None:
    Path("there").mkdir()
    assert outputs(source, output=to) == [str(Path(to) / "in.jsonl")]


def test_into_a_directory_the_tree_below_the_common_parent_is_kept() -> None:
    paths = own("r/1/a.jsonl", "r/2/a.jsonl", "r/b.jsonl")
    assert outputs(*paths, output="out/") == ["out/1/a.jsonl", "out/2/a.jsonl", "out/b.jsonl"]
    assert {*files(Path("out"))} == {"1/a.jsonl", "2/a.jsonl", "b.jsonl"}
    assert outputs(*paths[:2], output="flat/") == ["flat/1/a.jsonl", "flat/2/a.jsonl"]


def test_each_of_several_files_gets_an_output_beside_it_with_its_rows() -> None:
    a = made("a.csv", "prompt_id,reward\na,0\na,2\nb,5\n")
    b = made("b.csv", "prompt_id,reward\nb,1\nc,1\n")
    assert outputs(a, b, group_within="input", method="dr-grpo") == ["a.advantages.csv", "b.advantages.csv"]
    assert values("a.advantages.csv") == [-1.0, 1.0, 2.0]
    assert values("b.advantages.csv") == [-2.0, 0.0]


@pytest.mark.parametrize("to", ["-", "one.jsonl"])
def test_several_inputs_do_not_share_one_output(to: str, source: Path) -> None:
    with pytest.raises(UsageError, match=r"2 inputs cannot share.*-o DIRECTORY/"):
        compute(source, made("b.jsonl"), output=to, group_within="file")
    assert not Path("one.jsonl").exists()


def test_standard_input_is_the_only_input(source: Path) -> None:
    with pytest.raises(UsageError, match="standard input cannot be read together"):
        compute("-", source)


# --- nothing is overwritten --------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"output": "in.advantages.jsonl"}])
def test_an_output_that_exists_is_refused_without_force(options: dict[str, Any], source: Path) -> None:
    out = made("in.advantages.jsonl", "precious\n")
    with pytest.raises(UsageError, match=r"in\.advantages\.jsonl exists; add --force"):
        compute(source, **options)
    assert out.read_text() == "precious\n"
    compute(source, **options, force=True)
    assert len(rows_of(out)) == 4


def test_one_of_several_outputs_that_exists_stops_the_run() -> None:
    paths = own("a.jsonl", "b.jsonl")
    made("b.advantages.jsonl", "")
    with pytest.raises(UsageError, match=r"b\.advantages\.jsonl exists"):
        compute(*paths)
    assert not Path("a.advantages.jsonl").exists()


@pytest.mark.parametrize("name", ["in.jsonl", "./x/../in.jsonl", "symlink.jsonl", "hard.jsonl", "link/in.jsonl", "."])
def test_an_input_is_never_overwritten(name: str, source: Path) -> None:
    Path("x").mkdir()
    Path("symlink.jsonl").symlink_to(source)
    Path("hard.jsonl").hardlink_to(source)
    Path("link").symlink_to(Path.cwd(), target_is_directory=True)
    with pytest.raises(UsageError, match="is an input: it is never overwritten") as raised:
        compute(source, output=name, force=True)
    assert raised.value.hint == "give another name with -o"
    assert source.read_text() == LINES


def test_an_output_may_not_be_another_input(source: Path) -> None:
    other = made("out/in.jsonl")
    with pytest.raises(UsageError, match="is an input"):
        compute(source, other, output="out/", force=True, group_within="file")
    assert other.read_text() == LINES


def test_a_dry_run_writes_nothing_and_needs_no_name(source: Path) -> None:
    made("in.advantages.jsonl", "")
    before = files()
    assert look(source).facts["outputs"] == []
    assert files() == before


# --- columns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("to", SUFFIXES)
def test_every_column_stays_in_any_format_and_one_is_added_at_the_end(suffix: str, to: str) -> None:
    (out,) = outputs(write(f"in.{suffix}", ROWS), output=f"out.{to}", scale="none")
    assert columns(out) == ["prompt_id", "reward", "text", "advantage"]
    assert values(out, "prompt_id") == ["a", "a", "b", "b"]
    assert [*map(float, values(out, "reward"))] == [0, 2, 5, 5]
    assert values(out, "text") == ["no", "yes", "é", None]
    assert values(out) == CENTRED


@pytest.mark.parametrize("command", ["compute", "select --where mean<1"])
@pytest.mark.parametrize(("keys", "to"), [('1 "1"', "csv"), ('1 "1"', "jsonl"), ('1 "2"', "csv"), ('1.0 "1.0"', "csv")])
def test_keys_that_a_conversion_would_merge_are_named(command: str, keys: str, to: str) -> None:
    Path("mixed.jsonl").write_text("".join(f'{{"prompt_id": {key}, "reward": 0}}\n' * 2 for key in keys.split()))
    done = adv(f"{command} mixed.jsonl -o out.{to}")
    said = " ".join(f"{done.out} {done.err}".split())
    merged = "out.csv: prompt_id is text there, and 1 may be one group" in said
    assert merged == (to == "csv" and keys != '1 "2"')


def test_keys_that_a_conversion_would_merge_are_named_in_every_part() -> None:
    lines = [("a", "x"), ("a", "y"), ("b", 1), ("b", "1"), ("c", 2), ("c", "2")]
    text = "".join(
        json.dumps({"env": env, "prompt_id": key, "reward": at}) + "\n" for env, key in lines for at in (0, 1)
    )
    Path("mixed.jsonl").write_text(text)
    done = ran("compute mixed.jsonl --plan-by env --plan default:method=rloo -o out.csv")
    said = " ".join(done.out.split())
    assert [said.count(f"prompt_id is text there, and {key} may be one group") for key in "12"] == [1, 1]


WRITERS = [
    "compute NAME -o out.csv", "compute NAME -o same.jsonl", "compute NAME --in-place", "compute NAME -o o/", "compute NAME --summary s.json",
    "compute NAME --plan-by half --plan default:method=rloo -o out.csv",
    "select NAME --where mean<1 -o out.csv", "select NAME --where mean<1 --control --holdout 0.5 --holdout-seed 3 -o out.jsonl",
    "export NAME --to sft --prompt prompt --response text -o out.jsonl", "export NAME --to weights --prompt prompt --response text -o out.parquet",
    "compare NAME -m grpo -m rloo --write -o out.csv", "add NAME --from more.csv -o out.jsonl", "add NAME --from more.csv --in-place",
    "report NAME -o out.html",
]  # fmt: skip
# A file gets its name, is counted and told: nothing that reads values, and so might fail.
AFTERWARDS = {"files", "runs", "write", "errors", "cli", "render.report", "options", "plugins"}


@pytest.mark.parametrize("line", WRITERS)
def test_all_that_is_said_of_a_run_is_known_before_its_last_output_has_its_name(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key has two types, and a name that polars takes for a pattern which the name itself does not match."""
    rows = [
        {"^a$": key, "half": at // 4, "reward": at % 2, "prompt": f"{key!r}", "text": f"{at}"}
        for at, key in enumerate([1, 1, "1", "1", 2, 2, "x", "x"])
    ]
    write("mixed.jsonl", rows)
    Path("more.csv").write_text("more\n" + "0.5\n" * 8)
    Path("o").mkdir()
    called = set[str]()

    def follow(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event != "call" or not name.startswith("grpo_cli.") or frame.f_code.co_name == "__init__":
            return
        if name == "grpo_cli.cli.output" and frame.f_code.co_name == "show":
            sys.setprofile(None)
            monkeypatch.setattr(atomic, "_rename", renamed)
            return
        called.add(name.removeprefix("grpo_cli."))

    renamed = atomic._rename

    def watched(*args: Any, **more: Any) -> None:
        renamed(*args, **more)
        called.clear()
        sys.setprofile(follow)

    monkeypatch.setattr(atomic, "_rename", watched)
    options = "" if line.startswith("add") else "-g ^a$"
    try:
        done = adv(f"{line.replace('NAME', 'mixed.jsonl')} {options}")
    finally:
        sys.setprofile(None)
    assert done.status == 0, done.err
    assert called
    assert [name for name in called if not any(f"{name}.".startswith(f"{room}.") for room in AFTERWARDS)] == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_column_that_exists_is_an_error_with_both_ways_out(suffix: str) -> None:
    path = write(f"in.{suffix}", [{"advantage": 9.0, **row} for row in ROWS])
    with pytest.raises(DataError) as raised:
        compute(path)
    assert "already has a column 'advantage'" in raised.value.message
    assert raised.value.hint == "--replace overwrites it; --column NAME gives another name"
    (named,) = outputs(path, column="adv2", scale="none")
    assert columns(named) == ["advantage", "prompt_id", "reward", "text", "adv2"]
    assert values(named, "adv2") == CENTRED
    assert values(named) == [9.0] * 4
    (anew,) = outputs(path, replace=True, scale="none", force=True)
    assert sorted(columns(anew)) == ["advantage", "prompt_id", "reward", "text"]
    assert values(anew) == CENTRED


def test_the_columns_of_facts_must_be_free_too() -> None:
    path = made("f.csv", "prompt_id,reward,advantage_std\na,1,1\na,0,1\n")
    with pytest.raises(DataError, match="already has a column 'advantage_std'"):
        compute(path, facts=True)
    assert outputs(path) == ["f.advantages.csv"]


def test_a_column_has_a_name(source: Path) -> None:
    with pytest.raises(UsageError, match="a column without a name"):
        compute(source, column="")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_facts_describe_the_group_of_every_row(suffix: str) -> None:
    (out,) = outputs(write(f"in.{suffix}", ROWS), facts=True, column="adv", scale="none")
    assert columns(out)[-5:] == ["adv", "adv_mean", "adv_std", "adv_size", "adv_status"]
    assert values(out, "adv_mean") == [1.0, 1.0, 5.0, 5.0]
    assert values(out, "adv_std") == pytest.approx([2**0.5, 2**0.5, 0.0, 0.0])
    assert values(out, "adv_size") == [2] * 4
    assert values(out, "adv_status") == ["scored"] * 4


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_only_writes_the_key_the_rewards_and_what_was_computed(suffix: str) -> None:
    (out,) = outputs(write(f"in.{suffix}", ROWS), only=True, scale="none")
    assert columns(out) == ["prompt_id", "reward", "advantage"]
    assert values(out, "prompt_id") == ["a", "a", "b", "b"]
    assert values(out) == CENTRED


MIXED: list[Any] = ["a", "a", 1, 1, "1", "1", {"x": [1]}, {"x": [1]}, True, True, 'say "x"', 'say "x"', 2.5, 2.5]


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_only_writes_keys_of_several_types_that_join_back(suffix: str) -> None:
    rows = [{"k": key, "reward": at} for at, key in enumerate(MIXED)]
    Path("in.jsonl").write_text("".join(map("{}\n".format, map(json.dumps, rows))))
    Path("in.json").write_text(json.dumps(rows))
    ran(f"compute in.{suffix} --group k --only -o out.{suffix}")
    assert [row["k"] for row in rows_of(f"out.{suffix}")] == MIXED
    ran(f"add in.jsonl --from out.{suffix} --on k --take first --column advantage -o joined.jsonl")
    first = {json.dumps(row["k"]): row["advantage"] for row in reversed(rows_of(f"out.{suffix}"))}
    assert [row["advantage"] for row in rows_of("joined.jsonl")] == [first[json.dumps(key)] for key in MIXED]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_only_writes_such_keys_as_bare_texts_where_a_column_has_one_type(suffix: str) -> None:
    Path("in.jsonl").write_text("".join(json.dumps({"k": key, "reward": at}) + "\n" for at, key in enumerate(MIXED)))
    done = ran(f"compute in.jsonl --group k --only -o out.{suffix}")
    texts = ["a", "1", "1", '{"x":[1]}', "true", 'say "x"', "2.5"]
    assert [str(row["k"]) for row in rows_of(f"out.{suffix}")][::2] == texts
    assert f"out.{suffix}: k is text there, and 1 may be one group" in " ".join(done.out.split())
    Path("in.jsonl").write_text(
        "".join(json.dumps({"k": key, "reward": at}) + "\n" for at, key in enumerate("aa" + "bb"))
    )
    done = ran(f"compute in.jsonl --group k --only -o out.{suffix} --force")
    assert "warning" not in done.out
    Path("in.jsonl").write_text(
        "".join(json.dumps({"k": key, "reward": at}) + "\n" for at, key in enumerate(["a", "a", 2, 2]))
    )
    done = ran(f"compute in.jsonl --group k --only -o out.{suffix} --force")
    assert ("so keys that are no texts do not join" in " ".join(done.out.split())) == (suffix == "parquet")


def test_only_ignores_a_column_of_the_input_keeps_the_facts_and_has_no_key_without_one() -> None:
    path = made("a.jsonl", LINES.replace("}", ', "advantage": 7}'))
    (out,) = outputs(path, only=True, facts=True, scale="none")
    facts = ["advantage_mean", "advantage_std", "advantage_size", "advantage_status"]
    assert columns(out) == ["prompt_id", "reward", "advantage", *facts]
    assert values(out) == CENTRED
    (out,) = outputs(path, only=True, group_size=2, force=True)
    assert columns(out) == ["reward", "advantage"]


@pytest.mark.parametrize("to", ["out.jsonl", "out.parquet"])
def test_an_advantage_that_is_too_large_for_its_type_is_an_error(to: str) -> None:
    path = made("in.csv", "prompt_id,reward\n1,1e50\n1,0\n")
    said = r"the advantage 5e\+49 .of the reward 1e\+50. does not fit in 32 bits; use --dtype f64"
    with pytest.raises(DataError, match=said):
        compute(path, dtype="f32", method="dr-grpo", output=to)
    assert not Path(to).exists()
    compute(path, method="dr-grpo", output=to)


@pytest.mark.parametrize(("dtype", "wanted"), [("f64", pl.Float64), ("f32", pl.Float32)])
def test_the_type_of_the_column(dtype: str, wanted: Any, source: Path) -> None:
    compute(source, output="out.parquet", dtype=dtype, facts=True)
    compute(source, output="out.arrow", dtype=dtype, facts=True)
    for schema in (pl.read_parquet_schema("out.parquet"), pl.read_ipc_schema("out.arrow")):
        assert schema["advantage"] == wanted
        assert schema["advantage_mean"] == pl.Float64


# --- rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [None, "csv", "parquet"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rows_of_dropped_groups_are_left_out(suffix: str, to: str | None) -> None:
    out = f"out.{to or suffix}"
    done = compute(write(f"in.{suffix}", ROWS), output=out, zero_variance="drop", scale="none")
    assert values(out, "text") == ["no", "yes"]
    assert values(out) == [-1.0, 1.0]
    assert done.facts["dropped_rows"] == 2
    assert done.facts["rows"] == 4


def test_when_nothing_is_kept_a_file_without_rows_is_left() -> None:
    for suffix in SUFFIXES:
        compute(write(f"in.{suffix}", ROWS), output=f"out.{suffix}", zero_variance="drop", std_threshold=100)
    assert Path("out.jsonl").read_bytes() == b""
    assert Path("out.csv").read_text() == "prompt_id,reward,text,advantage\n"
    assert Path("out.tsv").read_text() == "prompt_id\treward\ttext\tadvantage\n"
    for frame in (pl.read_parquet("out.parquet"), pl.read_ipc("out.arrow")):
        assert frame.height == 0
        assert "advantage" in frame.columns


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "arrow"])
def test_a_file_that_loses_no_row_keeps_every_byte_where_another_one_does(suffix: str) -> None:
    full = write(f"a.{suffix}", [{"prompt_id": "z", "reward": 0}, {"prompt_id": "z", "reward": 1}])
    short = write(f"b.{suffix}", ROWS)
    text = suffix in {"jsonl", "csv"}
    if text:
        full.write_bytes(full.read_bytes().removesuffix(b"\n"))  # no last line feed
    compute(full, short, zero_variance="drop", scale="none", output="out/")
    assert len(rows_of(Path("out") / short)) == 2
    out = Path("out") / full
    assert verify(out, full).added == ("advantage",)
    old = full.read_bytes()
    new = out.read_bytes()
    if text:
        assert not new.endswith(b"\n")
    elif suffix == "parquet":
        footer = old.rindex(b"PAR1") - int.from_bytes(old[-8:-4], "little") - 4
        assert new[:footer] == old[:footer]


# --- copies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [None, "csv"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_dropped_groups_are_refilled_with_marked_copies(suffix: str, to: str | None) -> None:
    out = f"out.{to or suffix}"
    path = write(f"in.{suffix}", ROWS)
    compute(path, output=out, zero_variance="drop", duplicate=True, scale="none", column="adv")
    assert values(out, "text") == ["no", "yes", "no", "yes"]
    assert values(out, "adv") == [-1.0, 1.0, -1.0, 1.0]
    assert values(out, "adv_copy") == [False, False, True, True]


def test_the_seed_chooses_the_copies_and_the_same_seed_the_same() -> None:
    path = write("a.jsonl", [{"prompt_id": k // 2, "reward": k % 2 if k < 24 else 0} for k in range(48)])

    def copies(seed: int) -> list[int]:
        compute(path, output="out.jsonl", zero_variance="drop", duplicate=True, seed=seed, force=True)
        return [row["prompt_id"] for row in rows_of("out.jsonl") if row["advantage_copy"]]

    first = copies(0)
    assert len(first) == 24
    assert copies(0) == first
    assert copies(1) != first


def test_when_nothing_was_dropped_nothing_is_copied() -> None:
    path = made("a.csv", "prompt_id,reward\na,0\na,2\n")
    (out,) = outputs(path, zero_variance="drop", duplicate=True)
    assert values(out, "advantage_copy") == [False, False]


@pytest.mark.parametrize(
    "options", [{}, {"zero_variance": "null"}, {"set": "groups.small=drop", "min_group_size": 3}], ids=str
)
def test_copies_are_refused_where_constant_groups_are_not_dropped(options: dict[str, Any], source: Path) -> None:
    with pytest.raises(UsageError, match="add --zero-variance drop"):
        compute(source, duplicate=True, **options)


def test_copies_are_refused_for_several_files_and_where_the_mark_exists() -> None:
    with pytest.raises(UsageError, match="run it on one file at a time"):
        compute(*own("a.jsonl", "b.jsonl"), duplicate=True, zero_variance="drop", output="out/")
    marked = made("m.jsonl", LINES.replace("}", ', "advantage_copy": 1}'))
    with pytest.raises(DataError, match="already has a column 'advantage_copy'"):
        compute(marked, duplicate=True, zero_variance="drop")


# --- gates -------------------------------------------------------------------------------------------------


def test_a_gate_that_holds_says_what_it_saw_and_leaves_nothing_behind(source: Path) -> None:
    gate = "zero_variance_share >= 0.5 and not dropped_rows < 2"
    with pytest.raises(GateError, match="holds, nothing was written") as raised:
        compute(source, fail_on=gate, zero_variance="drop", output="out.jsonl")
    assert raised.value.hint == "zero_variance_share is 0.5, dropped_rows is 2"
    assert raised.value.status == 3
    assert files() == {"in.jsonl": LINES.encode()}


def test_a_gate_on_an_unknown_quantity_is_a_usage_error_and_writes_nothing(source: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'zero_variance_share'"):
        compute(source, fail_on="zero_varianc_share > 0")
    assert [*files()] == ["in.jsonl"]


# --- a file that changes -----------------------------------------------------------------------------------


def appended(path: Path) -> None:
    with path.open("a") as handle:
        handle.write(LINES)


def replaced(path: Path) -> None:
    path.rename("in.old")
    path.write_text(LINES)


def rewritten(path: Path) -> None:
    path.write_text(LINES.replace("yes", "YES"))
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("change", [appended, replaced, rewritten, Path.unlink])
@pytest.mark.parametrize("when", ["computing", "writing"])
@pytest.mark.parametrize("options", [{}, {"only": True}, {"output": "out.csv"}], ids=str)
def test_a_file_that_changes_between_the_readings_stops_the_run(
    change: Callable[[Path], None], when: str, options: dict[str, Any], source: Path
) -> None:
    def meanwhile(phase: str, *_: object) -> None:
        if phase == when:
            change(source)

    with pytest.raises(InputChanged, match=r"in\.jsonl: the file changed .* nothing was written") as raised:
        compute(source, phase=meanwhile, **options)
    assert raised.value.status == 1
    assert {*files()} <= {"in.jsonl", "in.old"}


def test_two_names_of_one_file_are_changed_in_place_one_after_the_other(source: Path) -> None:
    other = Path("b.jsonl")
    other.hardlink_to(source)
    compute(source, other, in_place=True, group_within="file")
    assert len(rows_of(source)) == 4
    assert len(rows_of(other)) == 4


@pytest.mark.parametrize("victim", [0, 1])
def test_of_several_files_one_that_changes_stops_all(victim: int) -> None:
    paths = own("a.jsonl", "b.jsonl")

    def meanwhile(phase: str, *_: object) -> None:
        if phase == "writing":
            appended(paths[victim])

    with pytest.raises(InputChanged, match="nothing was written"):
        compute(*paths, output="out/", phase=meanwhile)
    assert files(Path("out")) == {}


def test_a_file_that_changes_after_others_were_written_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = own("a.jsonl", "b.jsonl", "c.jsonl")
    actual = write_outputs.write_one

    def write_one(output: Any, writing: Any) -> Any:
        if writing.table.name.endswith("b.jsonl"):
            paths[1].write_text("changed")
        return actual(output, writing)

    monkeypatch.setattr(write_outputs, "write_one", write_one)
    with pytest.raises(
        InputChanged, match=r"b\.jsonl: .* 1 of 3 outputs had been written \(out/a\.jsonl\), the others were not"
    ):
        compute(*paths, output="out/")
    assert [*files(Path("out"))] == ["a.jsonl"]


def test_a_misspelt_quantity_of_a_formula_is_named_before_an_output_that_exists() -> None:
    made("out.jsonl", "mine")
    done = adv("compute in.jsonl --expr 'reward - meann' -o out.jsonl")
    assert done.status == 2
    assert done.err == "error: no quantity named 'meann'; did you mean 'mean'?\n"
    assert Path("out.jsonl").read_text() == "mine"


@pytest.mark.parametrize(
    ("output", "cure"),
    [
        (Output(), "when that is put right, add --force to write all of them again"),
        (Output(force=True), "when that is put right, run the same command again"),
        (Output(replace=True), "when that is put right, run the same command again"),
        (Output(in_place=True), "when that is put right, add --replace to write all of them again"),
        (Output(in_place=True, force=True), "when that is put right, add --replace to write all of them again"),
        (Output(in_place=True, replace=True), "when that is put right, run the same command again"),
    ],
)
def test_the_command_that_finishes_a_run_replaces_what_is_there_by_now(output: Output, cure: str) -> None:
    assert DataError("", write_outputs.finishing(output)).hint == cure


def test_a_device_has_nothing_to_lose_and_needs_no_force() -> None:
    refuse_path(Path(os.devnull), force=False)
    made("there.jsonl")
    with pytest.raises(UsageError, match=r"there\.jsonl exists; add --force to replace it"):
        refuse_path(Path("there.jsonl"), force=False)
