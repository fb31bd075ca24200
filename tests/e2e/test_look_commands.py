"""`inspect`, `select` and `report` as a user runs them, and the same of frames in Python."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from rich.cells import cell_len

import grpo_cli
from grpo_cli.errors import UnknownName
from grpo_cli.files.installation import install
from tests.support.command import adv, process
from tests.support.jobs import write
from tests.support.samples import samples_in

if TYPE_CHECKING:
    from pathlib import Path

STEPS = ("inspect", "steps.jsonl", "-g", "prompt_id,step")
SHARED = (
    "rows", "rollouts", "groups", "group_sizes", "singletons", "unscorable", "zero_variance", "schema", "group_key",
    "reward_columns", "warnings", "notes", "role_columns", "version",
)  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    samples_in(tmp_path)
    return tmp_path


# --- inspect -----------------------------------------------------------------------------------------------


def test_the_command_that_shows_the_texts_opens_the_same_groups(place: Path) -> None:
    shutil.copy(place / "steps.jsonl", place / "our steps.jsonl")
    options = ("-g", "prompt_id,step", "--reward", "reward", "--by", "step", "--sort", "mean", "--top", "1")
    done = adv("inspect", "our steps.jsonl", *options, cwd=place, COLUMNS="80")
    words = shlex.split(re.search(r"grpo-adv browse (.*\\\n)*.*", done.out)[0].replace("\\\n", ""))  # type: ignore[index]
    *words, key = words
    assert words == ["grpo-adv", "browse", "our steps.jsonl", "--group", *options[1:4], "--show"]
    shown = adv("inspect", "our steps.jsonl", *options[:4], "--show", key, cwd=place)
    assert f"{key} " in done.out.partition("groups by mean")[2] and shown.out.startswith(f"group          {key} ")
    # Groups are numbered among those that are left.
    left = adv("inspect", "steps.jsonl", "-g", "prompt_id,step", "--where", "mean < 0.5", cwd=place, COLUMNS="120")
    assert left.out.count("browse steps.jsonl --group prompt_id,step --where 'mean < 0.5'\n") == 1


@pytest.mark.parametrize("words", ["inspect", "compare -m grpo -m rloo", "audit", "audit --plan-by env"])
def test_own_outputs_in_a_folder_are_skipped_with_a_warning(words: str, tmp_path: Path) -> None:
    rows = [{"prompt_id": k // 4, "reward": k % 4, "advantage": k % 4 - 1.5, "env": k // 8} for k in range(16)]
    write(tmp_path / "in.jsonl", rows)
    assert adv("select", "in.jsonl", "--limit", "1", "-q", cwd=tmp_path).status == 0
    command, *options = words.split()
    skipped = "skipped 1 file (own outputs, empty, hidden, copies, or named twice): in.selected.jsonl"
    assert skipped in " ".join(adv(command, ".", *options, cwd=tmp_path).out.split())
    assert json.loads(adv(command, ".", *options, "--json", cwd=tmp_path).out)["warnings"] == [skipped]


def test_wide_characters_fit_beside_the_numbers_of_a_group(tmp_path: Path) -> None:
    rows = [{"prompt_id": "a", "reward": k, "completion": f"{k} " + "数学の問題" * 20} for k in range(3)]
    write(tmp_path / "in.jsonl", rows)
    shown = adv("inspect", "in.jsonl", "--show", "#1", cwd=tmp_path, COLUMNS="80").out.splitlines()
    of_rows = [line for line in shown if "数学" in line]
    assert len(of_rows) == 3 and all(70 < cell_len(line) <= 80 and "…" in line for line in of_rows)


def test_keys_of_bytes_and_lists_are_texts_of_a_table(tmp_path: Path) -> None:
    keys = {"id": [b"\xff", b"\xff", b"a", b"a"], "tags": [["x"]] * 2 + [["x", "y"]] * 2, "reward": [0, 1] * 2}
    pl.DataFrame(keys).write_parquet(tmp_path / "in.parquet")
    done = adv("inspect", "in.parquet", "-g", "id,tags", "--format", "csv", cwd=tmp_path)
    for key in ("#2", "b'a'"):
        shown = adv("inspect", "in.parquet", "-g", "id,tags", "--show", key, cwd=tmp_path)
        assert shown.out.startswith("group          #2 b'a', ")
    rows = [row[:2] for row in csv.reader(io.StringIO(done.out))]
    assert rows == [["id", "tags"], ["/w==", '["x"]'], ["YQ==", '["x","y"]']]


def test_a_list_of_named_presets_mentions_no_hidden_ones(place: Path) -> None:
    assert "--all lists" in adv("presets", cwd=place).out
    assert "--all lists" not in adv("presets", "trl", cwd=place).out


@pytest.mark.parametrize("width", ["80", "60", "120"])
@pytest.mark.parametrize(
    "line",
    [
        "inspect rewards.jsonl",
        "inspect steps.jsonl -g prompt_id,step --by step",
        "inspect steps.jsonl -g prompt_id,step --show add-17-25,1",
        "inspect two_rewards.jsonl -r accuracy -r format",
        "select rewards.jsonl -w '0.1 <= mean <= 0.9 and std > 0.3' --per-group 2 --limit 2 --force",
    ],
)
def test_nothing_is_wider_than_the_terminal(line: str, width: str, place: Path) -> None:
    done = adv(*shlex.split(line), cwd=place, COLUMNS=width)
    assert done.status == 0, done.err
    assert max(map(len, done.out.splitlines())) <= int(width)


def test_colour_is_for_terminals_that_want_it(place: Path) -> None:
    assert "\x1b[" not in adv("inspect", "rewards.jsonl", cwd=place).out
    coloured = process("inspect", "rewards.jsonl", cwd=place, NO_COLOR="", FORCE_COLOR="1", TERM="xterm-256color").out
    assert "\x1b[" in coloured


def test_without_block_characters_there_are_plain_ones(place: Path) -> None:
    done = process("inspect", "rewards.jsonl", cwd=place, PYTHONIOENCODING="ascii")
    assert done.status == 0
    assert done.out.isascii() and "##" in done.out


def test_json_shares_its_keys_with_compute(place: Path) -> None:
    looked = json.loads(adv("inspect", "rewards.jsonl", "--json", cwd=place).out)
    computed = json.loads(adv("compute", "rewards.jsonl", "--json", "-o", "out.jsonl", cwd=place).out)
    assert {name: looked[name] for name in SHARED} == {name: computed[name] for name in SHARED}
    assert {name: looked["reward"][name] for name in computed["reward"]} == computed["reward"]
    assert looked["advantage_column"] is None
    assert looked["verdicts"]
    assert not {"plan", "advantage", "skipped", "outputs"} & looked.keys()


def test_an_existing_advantage_column_is_named(place: Path) -> None:
    adv("compute", "rewards.jsonl", "-o", "out.jsonl", cwd=place)
    assert json.loads(adv("inspect", "out.jsonl", "--json", cwd=place).out)["advantage_column"] == "advantage"


def test_a_pipe_is_inspected(place: Path) -> None:
    done = adv("inspect", "-", "--json", cwd=place, stdin=(place / "rewards.jsonl").read_text())
    assert json.loads(done.out)["rows"] == 46


def test_all_groups_as_csv(place: Path) -> None:
    done = adv("inspect", "rewards.jsonl", "--format", "csv", cwd=place)
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert len(rows) == 10
    assert (rows[0]["prompt_id"], float(rows[0]["mean"]), rows[0]["size"]) == ("add-17-25", 0.625, "8")
    by_length = adv("inspect", "rewards.jsonl", "--format", "csv", "--sort", "length", "--top", "2", cwd=place).out
    assert [line.split(",")[0] for line in by_length.splitlines()[1:]] == ["primes-below-20", "hex-255"]


def test_a_trend_as_markdown(place: Path) -> None:
    lines = adv(*STEPS, "--by", "step", "--format", "md", cwd=place).out.splitlines()
    assert lines[0].startswith("| step | groups | rows |")
    assert lines[1].startswith("| --: | --: |")
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| 0", "| 1", "| 2", "| 3"]


def test_a_trend_of_many_values_shows_some_and_says_so(place: Path) -> None:
    rows = [{"prompt_id": f"{step}", "step": step, "reward": k} for step in range(50) for k in range(2)]
    write(place / "long.jsonl", rows)
    done = adv("inspect", "long.jsonl", "--by", "step", cwd=place)
    assert "20 of 50 values; --format csv has all" in done.out
    assert len(adv("inspect", "long.jsonl", "--by", "step", "--format", "csv", cwd=place).out.splitlines()) == 51


def test_a_trend_by_a_column_named_like_a_fact_is_still_a_table(place: Path) -> None:
    write(place / "named.jsonl", [{"prompt_id": 1, "rows": i, "reward": i} for i in range(2)])
    lines = adv("inspect", "named.jsonl", "--by", "rows", "--format", "csv", cwd=place).out.splitlines()
    assert [line.split(",")[:3] for line in lines] == [["value", "groups", "rows"], ["0", "1", "1"], ["1", "0", "1"]]


def test_a_reward_column_hides_no_other_column_of_its_name(place: Path) -> None:
    write(place / "named.jsonl", [{"prompt_id": 1, "reward": i, "length": 5} for i in range(2)])
    args = ("-r", "reward=2", "-r", "length=0.1", "--show", "1", "--format", "csv")
    (first, second) = csv.DictReader(io.StringIO(adv("inspect", "named.jsonl", *args, cwd=place).out))
    assert (first["reward"], second["reward"], second["rewards.reward"]) == ("0.5", "2.5", "1.0")
    assert second["rewards.length"] == "5.0"


def test_of_a_large_group_the_first_rows_are_shown(place: Path) -> None:
    write(place / "large.jsonl", [{"prompt_id": 1, "reward": i % 2} for i in range(500)])
    done = adv("inspect", "large.jsonl", "--show", "1", cwd=place)
    assert done.out.splitlines()[-1] == "64 of 500 rows; --format csv has all"
    assert len(adv("inspect", "large.jsonl", "--show", "1", "--format", "csv", cwd=place).out.splitlines()) == 501


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--by", "stepp"), 1, "stepp"),
        (("--show", "nobody"), 1, "no group has the key 'nobody'"),
        (("--sort", "sdt"), 2, "did you mean 'std'"),
        (("--format", "csv", "--json"), 2, "cannot be combined"),
        (("--text-column", "nothing", "--duplicates"), 1, "nothing"),
        (("--reward-clip", "0:1"), 2, "--reward-clip"),
    ],
    ids=str,
)
def test_an_error_is_one_line(arguments: tuple[str, ...], status: int, message: str, place: Path) -> None:
    done = adv("inspect", "rewards.jsonl", *arguments, cwd=place)
    assert (done.status, done.out) == (status, "")
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_the_method_changes_the_shown_advantages(place: Path) -> None:
    done = adv("inspect", "rewards.jsonl", "--show", "decimal", "--method", "rloo", "--json", cwd=place)
    assert [row["advantage"] for row in json.loads(done.out)["show"]["rows"]] == pytest.approx(
        [-2 / 3, 2 / 3, 2 / 3, -2 / 3]
    )


# --- select and report -------------------------------------------------------------------------------------


def test_chosen_rows_go_to_stdout_and_the_summary_to_stderr(place: Path) -> None:
    done = adv("select", "rewards.jsonl", "-w", "std > 0", "-o", "-", cwd=place)
    assert len(done.rows) == 36
    assert "7 of 10 kept (70%)" in done.err


def test_a_choice_is_shown_as_json_and_to_a_file(place: Path) -> None:
    done = adv("select", "rewards.jsonl", "-w", "std > 0", "-o", "a.jsonl", "--json", "--summary", "a.json", cwd=place)
    facts = json.loads(done.out)
    assert facts == json.loads((place / "a.json").read_text())
    assert (facts["kept_rows"], facts["dropped"][0]["reason"]) == (36, "std > 0 is false")


def test_select_takes_its_columns_from_a_configuration(place: Path) -> None:
    (place / "grpo.toml").write_text('group = "prompt_id"\nreward = "reward"\n')
    assert adv("select", "rewards.jsonl", "--limit", "1", "--config", "grpo.toml", "--quiet", cwd=place).out == ""
    assert len((place / "rewards.selected.jsonl").read_text().splitlines()) == 8


def test_options_of_compute_in_a_shared_configuration_are_ignored(place: Path) -> None:
    (place / "grpo.toml").write_text('reward = "reward"\nsummary = "run.json"\nper-token = true\ntokens = "ids"\n')
    done = adv("inspect", "rewards.jsonl", "--config", "grpo.toml", cwd=place)
    assert (done.status, done.err) == (0, "")
    assert not (place / "run.json").exists()


def test_an_existing_output_is_kept(place: Path) -> None:
    (place / "a.jsonl").write_text("mine")
    (place / "a.svg").write_text("mine")
    for command, target in (("select", "a.jsonl"), ("report", "a.svg")):
        more = ["--limit", "1"] if command == "select" else []
        done = adv(command, "rewards.jsonl", *more, "-o", target, cwd=place)
        assert (done.status, (place / target).read_text()) == (2, "mine")
        assert "--force" in done.err


def test_a_report_of_this_folder_has_its_name(place: Path) -> None:
    pytest.importorskip("altair")
    inner = place / "inner"
    inner.mkdir()
    shutil.copy(place / "rewards.jsonl", inner)
    done = adv("report", ".", cwd=inner)
    assert (done.status, done.out.split(":")[0]) == (0, "inner.report.html")


def test_a_report_is_written_next_to_its_input(place: Path) -> None:
    pytest.importorskip("altair")
    done = adv("report", "rewards.jsonl", cwd=place)
    assert done.status == 0, done.err
    assert done.out.startswith("rewards.report.html: 1.0 MB, 46 rows in 10 groups")
    assert (place / "rewards.report.html").read_text().startswith("<!doctype html>")


def test_a_report_against_another_run_draws_what_changed(place: Path) -> None:
    pytest.importorskip("altair")
    done = adv("report", "rewards.jsonl", "--against", "rewards.parquet", "-o", "a.html", cwd=place)
    assert done.status == 0, done.err
    page = (place / "a.html").read_text()
    assert "prompts that are also in rewards.parquet" in page
    assert 'id="figure-changes"' in page and 'id="figure-by_difficulty"' in page
    assert 'id="figure-gained_and_lost"' not in page  # none changed
    missing = adv("report", "rewards.jsonl", "--against", "no.jsonl", "-o", "b.html", cwd=place)
    assert (missing.status, (place / "b.html").exists()) == (1, False)


def test_a_report_without_its_extra_says_how_to_have_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_cli.cli.report.NEEDS", ("no_such_library",))
    done = adv("report", "rewards.jsonl", "-o", "a.html", cwd=place)
    assert (done.status, (place / "a.html").exists()) == (2, False)
    monkeypatch.chdir(place)  # a clone is named from where the command runs
    assert done.err.rstrip().endswith(install("report"))


def test_a_report_of_a_pattern_is_not_named_after_it(place: Path) -> None:
    done = adv("report", "*.jsonl", cwd=place)
    assert (done.status, list(place.glob("*.html"))) == (2, [])
    assert done.err == "error: a report of all that *.jsonl matches has no default name; give -o report.html\n"


@pytest.mark.parametrize("target", ["a.docx", "no/such/place.html"])
def test_a_report_that_cannot_be_written_is_refused_before_it_is_drawn(target: str, place: Path) -> None:
    done = adv("report", "rewards.jsonl", "-o", target, cwd=place)
    assert done.status == 2
    assert len(done.err.strip().splitlines()) == 1


# --- frames ------------------------------------------------------------------------------------------------


def frames(place: Path) -> dict[str, Any]:
    frame = pl.read_parquet(place / "rewards.parquet")
    return {"polars": frame, "lazy": frame.lazy(), "pandas": frame.to_pandas(), "pyarrow": frame.to_arrow()}


@pytest.mark.parametrize("kind", ["polars", "lazy", "pandas", "pyarrow"])
def test_a_frame_of_any_kind_is_inspected_and_selected_from(kind: str, place: Path) -> None:
    frame = frames(place)[kind]
    look = grpo_cli.inspect(frame, sort="mean", top=2)
    assert look.facts["rows"] == 46
    assert look.groups.filter("constant")["prompt_id"].to_list() == ["multiply-6-7", "fibonacci-50"]
    chosen = grpo_cli.select(frame, where="std > 0", per_group=2, pick="random", seed=4)
    assert len(chosen.frame) == chosen.facts["kept_rows"] == 14
    assert type(chosen.frame) is type(frames(place)["polars" if kind == "lazy" else kind])


def test_texts_of_a_lazy_frame_are_read_only_on_request(place: Path) -> None:
    found = frames(place)
    assert grpo_cli.inspect(found["lazy"]).facts["duplicates"] is None
    assert grpo_cli.inspect(found["lazy"], duplicates=True).facts["duplicates"]["rows"] == 4
    assert grpo_cli.inspect(found["polars"]).facts["duplicates"]["rows"] == 4


def test_an_inspection_has_text_and_html(place: Path) -> None:
    look = grpo_cli.inspect(frames(place)["polars"])
    assert "solve rate" in str(look)
    assert look.show("hex-255")["rows"][0]["status"] == "singleton"
    assert look.verdicts == look.facts["verdicts"]


def test_a_notebook_shows_the_verdict_the_numbers_two_figures_and_the_groups(place: Path) -> None:
    pytest.importorskip("altair")
    html = grpo_cli.inspect(frames(place)["polars"])._repr_html_()
    wanted = ("What it means", "without a gradient", "<svg", "Solve rates", "hex-255")
    assert [words in html for words in wanted] == [True] * len(wanted)


def test_a_notebook_without_the_extra_shows_the_text(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    for name in [name for name in sys.modules if name.startswith("grpo_cli.render.report")]:
        monkeypatch.delitem(sys.modules, name)
    html = grpo_cli.inspect(frames(place)["polars"])._repr_html_()
    assert html.startswith("<pre") and "solve rate" in html and "\x1b" not in html


def test_a_report_without_a_path_is_a_page_that_a_notebook_shows(place: Path) -> None:
    pytest.importorskip("altair")
    page = grpo_cli.report(frames(place)["polars"])
    assert page.html.startswith("<!doctype html>") and "What it means" in page.html
    assert page._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')


def test_a_look_draws_the_figures_of_the_report(place: Path) -> None:
    pytest.importorskip("altair")
    look = grpo_cli.inspect(frames(place)["polars"])
    assert look.chart("rewards").to_dict()["mark"] == {"type": "bar"}
    assert look.chart("advantages_rloo", methods=["rloo"]).to_dict()["title"] == "Advantages, rloo"
    with pytest.raises(UnknownName, match="did you mean 'rewards'"):
        look.chart("reward")


def test_an_option_of_another_command_is_refused(place: Path) -> None:
    frame = frames(place)["polars"]
    for call, name in ((grpo_cli.inspect, "output"), (grpo_cli.select, "cluster"), (grpo_cli.inspect, "reward_clip")):
        with pytest.raises(UnknownName, match=f"no option named '{name}'"):
            call(frame, **dict[str, Any]({name: "x"}))


@pytest.mark.parametrize("more", [[], ["--json"], ["--quiet"], ["--format", "csv"], ["--show", "hex-255"]])
def test_inspect_is_a_gate_that_shows_what_was_asked_for_and_then_fails(more: list[str], place: Path) -> None:
    words = ["inspect", "rewards.jsonl", *more]
    plain = adv(*words, cwd=place)
    passed = adv(*words, "--fail-on", "zero_variance_share > 0.5 or groups < 10", cwd=place)
    assert (passed.status, passed.out, passed.err) == (0, plain.out, plain.err)
    failed = adv(*words, "--fail-on", "zero_variance_share > 0.2", cwd=place)
    assert (failed.status, failed.out) == (3, plain.out)
    assert failed.err.endswith(
        "--fail-on condition 'zero_variance_share > 0.2' holds; zero_variance_share is 0.222222\n"
    )


def test_a_gate_of_inspect_has_the_quantities_of_compute_that_need_no_advantages(place: Path) -> None:
    done = adv("compute", "rewards.jsonl", "-o", "-", "--quiet", "--fail-on", "reward_mean > 0.1", cwd=place)
    looked = adv("inspect", "rewards.jsonl", "--quiet", "--fail-on", "reward_mean > 0.1", cwd=place)
    assert looked.err.split("; ")[-1] == done.err.split("; ")[-1] == "reward_mean is 0.582913\n"
    unknown = adv("inspect", "rewards.jsonl", "--fail-on", "zero_share > 0", cwd=place)
    assert "no quantity named 'zero_share'" in unknown.err


@pytest.mark.parametrize("where", ["std > 0", "0.1 <= mean <= 0.9", "prompt_id != 'hex-255' and size > 2"])
@pytest.mark.parametrize("more", [["--by", "sample"], ["--scale", "batch", "--whiten", "sample"]])
def test_groups_that_meet_a_condition_are_inspected_as_the_file_that_select_makes_of_them(
    where: str, more: list[str], place: Path
) -> None:
    assert adv("select", "rewards.jsonl", "--where", where, "-o", "kept.jsonl", "-q", cwd=place).status == 0
    wanted = json.loads(adv("inspect", "kept.jsonl", *more, "--json", cwd=place).out)
    found = json.loads(adv("inspect", "rewards.jsonl", "--where", where, *more, "--json", cwd=place).out)
    assert any(note.startswith(f"where {where}: ") for note in found["notes"])
    assert f" where {where}: " in adv("inspect", "rewards.jsonl", "--where", where, cwd=place).out
    for name in ("inputs", "notes"):
        del wanted[name], found[name]
    assert found == wanted


def test_groups_that_meet_a_condition_are_found_beside_rows_that_were_left_out(place: Path) -> None:
    blocks = ["--group-size", "4", "--partial", "drop"]
    some = ("rewards.jsonl", *blocks, "--where", "std > 0")
    assert adv("select", *some, "-o", "kept.jsonl", "-q", cwd=place).status == 0
    wanted = json.loads(adv("inspect", "kept.jsonl", "--group-size", "4", "--json", cwd=place).out)
    found = json.loads(adv("inspect", *some, "--json", cwd=place).out)
    for name in ("rows", "groups", "reward", "zero_variance", "difficulty", "length", "duplicates", "effective_rows"):
        assert found[name] == wanted[name]


def test_tables_and_texts_of_groups_that_meet_a_condition_are_their_own(place: Path) -> None:
    whole = adv("inspect", "rewards.jsonl", "--format", "csv", cwd=place).out.splitlines()
    some = adv("inspect", "rewards.jsonl", "--where", "std > 0", "--format", "csv", cwd=place).out.splitlines()
    assert some[0] == whole[0] and {*some} < {*whole} and len(some) == 8
    key = some[3].split(",")[0]
    # A number is that of the list which the same options show.
    shown = [
        re.sub(r"#\d+", "#", adv("inspect", "rewards.jsonl", *words, "--show", key, "--scale", "none", cwd=place).out)
        for words in ([], ["--where", "std > 0"])
    ]
    assert shown[0] == shown[1] and key in shown[0]
    none = adv("inspect", "rewards.jsonl", "--where", "mean > 7", cwd=place)
    assert none.err.startswith("error: no group meets --where mean > 7")


@pytest.mark.parametrize(
    ("values", "shares"),
    [((1, 1.0000001, 1.00000005), ""), ((1, 2, 1.5), "  33.3% at 1  33.3% at 2"), ((1, 1, 1), ""), ((1, 2, 2), "")],
)
def test_the_ends_of_the_rewards_have_shares_where_they_read_differently(
    values: tuple[float, ...], shares: str, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text("".join(f'{{"prompt_id": 1, "reward": {value}}}\n' for value in values))
    (line,) = re.findall(r"^ +(mean .+)$", adv("inspect", "in.jsonl", cwd=tmp_path).out, re.MULTILINE)
    assert re.fullmatch(r"mean \S+  std \S+" + shares, line)


@pytest.mark.parametrize(("constant", "larger"), [(False, "100%"), (True, ">=75%")])
def test_a_lower_bound_of_100_percent_has_no_sign(*, constant: bool, larger: str, tmp_path: Path) -> None:
    groups = [[0, 0.1, 0.1, 0.3]] * 3 + [[0.5, 0.5] if constant else [0, 0.5]]
    rows = [{"prompt_id": k, "reward": reward} for k, group in enumerate(groups) for reward in group]
    write(tmp_path / "in.jsonl", rows)
    shown = adv("inspect", "in.jsonl", cwd=tmp_path, COLUMNS="100").out
    (line,) = re.findall(r"with a gradient (.+)", shown)
    assert line.split()[1:] == [larger]  # 4 rows, where one group has 2
    assert (">= lower bound" in shown) == constant


def test_categories_have_bars_of_their_share_without_a_gradient_and_names_at_the_left(tmp_path: Path) -> None:
    rows = [
        {"prompt_id": f"{env}{k}", "env": env, "reward": r}
        for env, rewards in (("code", (0, 1)), ("mathematics", (1, 1)), ("web", (0, 0)))
        for k in range(4)
        for r in rewards
    ]
    write(
        tmp_path / "in.jsonl",
        [row if row["prompt_id"] != "web0" else row | {"reward": i % 2} for i, row in enumerate(rows)],
    )
    printed = adv("inspect", "in.jsonl", "--by", "env", cwd=tmp_path, COLUMNS="80").out
    table = [line for line in printed.splitlines() if re.match(r"(mathematics|web|code) ", line)]
    assert [line.split()[0] for line in table] == ["mathematics", "web", "code"]
    bars = [line.count("█") for line in table]
    assert bars[0] > bars[1] > bars[2] == 0
