"""`inspect`, `select` and `report` as a user runs them, and the same of frames in Python."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.cells import cell_len

import grpo_cli
from grpo_cli.errors import UnknownName
from grpo_cli.files.installation import install
from tests.support.command import adv, facts_of, files, process, ran
from tests.support.jobs import samples_in, write

SHARED = (
    "rows", "rollouts", "groups", "group_sizes", "singletons", "unscorable", "zero_variance", "schema", "group_key",
    "reward_columns", "warnings", "notes", "role_columns", "version",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _samples(place: Path) -> None:
    samples_in(place)


def table(line: str) -> list[dict[str, str]]:
    """The rows that a command gives as CSV."""
    return [*csv.DictReader(io.StringIO(adv(f"{line} --format csv").out))]


# --- inspect -----------------------------------------------------------------------------------------------


def test_the_command_that_shows_the_texts_names_the_file() -> None:
    shutil.copy("steps.jsonl", "our steps.jsonl")
    done = adv(
        "inspect 'our steps.jsonl' -g prompt_id,step --reward reward --by step --sort mean --top 1", COLUMNS="80"
    )
    (browse,) = re.findall(r"grpo-adv browse (?:.*\\\n)*.*", done.out)
    words = shlex.split(browse.replace("\\\n", ""))
    assert shlex.join(words) == "grpo-adv browse 'our steps.jsonl' --group prompt_id,step --reward reward"
    left = adv("inspect steps.jsonl -g prompt_id,step --where 'mean < 0.5'", COLUMNS="120")
    assert left.out.count("browse steps.jsonl --group prompt_id,step --where 'mean < 0.5'\n") == 1


@pytest.mark.parametrize("words", ["inspect .", "compare . -m grpo -m rloo", "audit ."])
def test_own_outputs_in_a_folder_are_skipped_with_a_warning(
    words: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    rows = [{"prompt_id": k // 4, "reward": k % 4, "advantage": k % 4 - 1.5, "env": k // 8} for k in range(16)]
    write(folder / "in.jsonl", rows)
    ran("select in.jsonl --limit 1 -q", cwd=folder)
    skipped = "skipped 1 file (own outputs, empty, hidden, copies, or named twice): in.selected.jsonl"
    assert skipped in " ".join(adv(words, cwd=folder).out.split())
    assert facts_of(f"{words}", cwd=folder)["warnings"] == [skipped]


def test_wide_characters_fit_beside_the_numbers_of_a_group() -> None:
    write("in.jsonl", [{"prompt_id": "a", "reward": k, "completion": f"{k} " + "数学の問題" * 20} for k in range(3)])
    shown = adv("inspect in.jsonl --show '#1'", COLUMNS="80").out.splitlines()
    of_rows = [line for line in shown if "数学" in line]
    assert len(of_rows) == 3
    assert all(70 < cell_len(line) <= 80 and "…" in line for line in of_rows)


def test_keys_of_bytes_and_lists_are_texts_of_a_table() -> None:
    keys = {"id": [b"\xff", b"\xff", b"a", b"a"], "tags": [["x"]] * 2 + [["x", "y"]] * 2, "reward": [0, 1] * 2}
    pl.DataFrame(keys).write_parquet("in.parquet")
    for key in ("#2", "b'a'"):
        shown = adv("inspect in.parquet -g id,tags --show", key)
        assert shown.out.startswith("group          #2 b'a', ")
    rows = table("inspect in.parquet -g id,tags")
    assert [(row["id"], row["tags"]) for row in rows] == [("/w==", '["x"]'), ("YQ==", '["x","y"]')]


def test_a_list_of_named_presets_mentions_no_hidden_ones() -> None:
    assert "--all lists" in adv("presets").out
    assert "--all lists" not in adv("presets trl").out


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
def test_nothing_is_wider_than_the_terminal(line: str) -> None:
    done = ran(line, COLUMNS="60")
    lines = [text for text in done.out.splitlines() if not text.startswith("to read their texts:")]  # to be copied
    assert max(map(len, lines)) <= 60


def test_colour_is_for_terminals_that_want_it_and_without_block_characters_there_are_plain_ones() -> None:
    assert "\x1b[" not in adv("inspect rewards.jsonl").out
    assert "\x1b[" in process("inspect rewards.jsonl", NO_COLOR="", FORCE_COLOR="1", TERM="xterm-256color").out
    plain = process("inspect rewards.jsonl", PYTHONIOENCODING="ascii")
    assert plain.status == 0
    assert plain.out.isascii()
    assert "##" in plain.out


def test_a_colour_has_one_meaning_and_what_is_drawn_is_dim() -> None:
    out = ran("inspect steps.jsonl -g prompt_id,step --color always", COLUMNS="80").out
    assert "\x1b[1msolve rate     \x1b[0m\x1b[31m0, never\x1b[0m   3  \x1b[2m█" in out
    assert "\x1b[32m1, always\x1b[0m  3  \x1b[2m█" in out
    assert "3 \x1b[32malways solved\x1b[0m, 3 \x1b[31mnever solved\x1b[0m" in out
    assert "\x1b[1mverdict        \x1b[0mOver \x1b[1m4\x1b[0m steps" in out
    assert {*re.findall(r"\x1b\[(\d+)m", out)} == {"0", "1", "2", "31", "32"}


def test_json_shares_its_keys_with_compute() -> None:
    looked = facts_of("inspect rewards.jsonl")
    computed = facts_of("compute rewards.jsonl -o out.jsonl")
    assert {name: looked[name] for name in SHARED} == {name: computed[name] for name in SHARED}
    assert {name: looked["reward"][name] for name in computed["reward"]} == computed["reward"]
    assert looked["verdicts"]
    assert not {"plan", "advantage", "skipped", "outputs"} & looked.keys()
    assert [looked["advantage_column"], facts_of("inspect out.jsonl")["advantage_column"]] == [None, "advantage"]
    assert facts_of("inspect -", stdin=Path("rewards.jsonl").read_text())["rows"] == 46


def test_all_groups_as_csv() -> None:
    rows = table("inspect rewards.jsonl")
    assert len(rows) == 10
    assert rows[0]["prompt_id"] == "add-17-25"
    assert float(rows[0]["mean"]) == 0.625
    assert rows[0]["size"] == "8"
    by_length = table("inspect rewards.jsonl --sort length --top 2")
    assert [row["prompt_id"] for row in by_length] == ["primes-below-20", "hex-255"]


def sections(line: str) -> list[str]:
    """The labels and heads of what is printed, in their order."""
    heads = "rewards|solve rate|spread|length|duplicates|mean  |groups by|step  |verdict"
    return re.findall(rf"^(?:{heads})", ran(line, COLUMNS="80").out, re.MULTILINE)


def test_a_table_that_is_asked_for_comes_last_before_the_verdict_and_full_has_the_rest() -> None:
    look = "inspect steps.jsonl -g prompt_id,step"
    of_trend = ["mean  ", "spread", "length"]
    every = ["rewards", "solve rate", "spread", "length", *of_trend, "groups by"]
    in_brief = ["rewards", *of_trend]
    assert sections(look) == [*every, "verdict"]
    assert sections(f"{look} --by step") == [*in_brief, "step  ", "verdict"]
    assert sections(f"{look} --by step --full") == [*every, "step  ", "verdict"]
    assert sections(f"{look} --top 1") == [*in_brief, "groups by", "verdict"]
    assert sections(f"{look} --by step --sort mean") == [*in_brief, "groups by", "step  ", "verdict"]


def test_what_an_option_asks_for_is_shown_beside_a_table() -> None:
    look = "inspect steps.jsonl -g prompt_id,step --by step"
    assert "duplicates" in sections(f"{look} --duplicates --text-column prompt_id")
    assert sections(f"{look} --length-column length").count("length") == 2
    assert sections(look).count("length") == 1  # that of the trend


def test_the_course_of_a_run_stands_above_a_table_over_another_column() -> None:
    out = ran("inspect steps.jsonl -g prompt_id,step --by prompt_id", COLUMNS="80").out
    assert re.search(r"^mean +▁▃▆▇  0.188 to 0.75$", out, re.MULTILINE)
    assert "verdict        Over 4 steps, too few to tell a trend from chance, the mean" in out
    assert "By prompt_id, 25% (reverse-polars) to 50% (fibonacci-50) of the groups" in " ".join(out.split())
    assert facts_of("inspect steps.jsonl -g prompt_id,step --by prompt_id")["steps"]["column"] == "step"
    assert "steps" not in facts_of("inspect steps.jsonl -g prompt_id,step --by step")


def test_equal_rewards_are_not_called_without_a_gradient_where_the_method_gives_them_one() -> None:
    out = ran("inspect steps.jsonl -g prompt_id,step --method reinforce", COLUMNS="200").out
    assert "gradient" not in out
    assert "37.5% of groups have equal rewards: 18.8% always solved, 18.8% never solved." in out


def test_empty_texts_repeat_nothing() -> None:
    write(
        "empty.jsonl",
        [{"prompt_id": 1, "reward": k % 2, "completion": text} for k, text in enumerate(["", "", "a", "a"])],
    )
    write("no messages.jsonl", [{"prompt_id": 1, "reward": k % 2, "completion": []} for k in range(4)])
    assert facts_of("inspect empty.jsonl")["duplicates"]["rows"] == 1
    assert facts_of("inspect 'no messages.jsonl'")["duplicates"]["rows"] == 0


@pytest.mark.parametrize("other", ["--show 1", "--format csv", "--against rewards.parquet"])
def test_full_is_refused_where_there_is_nothing_else_to_show(other: str) -> None:
    refused = adv(f"inspect rewards.jsonl --full {other}")
    assert refused.status == 2
    assert f"--full and {other.split(maxsplit=1)[0]} cannot be combined" in refused.err


def test_a_trend_as_markdown() -> None:
    lines = adv("inspect steps.jsonl -g prompt_id,step --by step --format md").out.splitlines()
    assert lines[0].startswith("| step | groups | rows |")
    assert lines[1].startswith("| --: | --: |")
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| 0", "| 1", "| 2", "| 3"]


def test_a_trend_of_many_values_shows_some_and_says_so() -> None:
    write("long.jsonl", [{"prompt_id": row // 2, "step": row // 2, "reward": row % 2} for row in range(100)])
    assert "20 of 50 values; --format csv has all" in adv("inspect long.jsonl --by step").out
    assert len(table("inspect long.jsonl --by step")) == 50


def test_a_trend_by_a_column_named_like_a_fact_is_still_a_table() -> None:
    write("named.jsonl", [{"prompt_id": 1, "rows": i, "reward": i} for i in range(2)])
    lines = adv("inspect named.jsonl --by rows --format csv").out.splitlines()
    assert [line.split(",")[:3] for line in lines] == [["value", "groups", "rows"], ["0", "1", "1"], ["1", "0", "1"]]


def test_a_reward_column_hides_no_other_column_of_its_name() -> None:
    write("named.jsonl", [{"prompt_id": 1, "reward": i, "length": 5} for i in range(2)])
    first, second = table("inspect named.jsonl -r reward=2 -r length=0.1 --show 1")
    assert first["reward"] == "0.5"
    assert second["reward"] == "2.5"
    assert second["rewards.reward"] == "1.0"
    assert second["rewards.length"] == "5.0"


def test_of_a_large_group_the_first_rows_are_shown() -> None:
    write("large.jsonl", [{"prompt_id": 1, "reward": i % 2} for i in range(500)])
    assert adv("inspect large.jsonl --show 1").out.endswith("\n64 of 500 rows; --format csv has all\n")
    assert len(table("inspect large.jsonl --show 1")) == 500


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("inspect rewards.jsonl --by stepp", 1, "stepp"),
        ("inspect rewards.jsonl --show nobody", 1, "no group has the key 'nobody'"),
        ("inspect rewards.jsonl --sort sdt", 2, "did you mean 'std'"),
        ("inspect rewards.jsonl --format csv --json", 2, "cannot be combined"),
        ("inspect rewards.jsonl --text-column nothing --duplicates", 1, "nothing"),
        ("inspect rewards.jsonl --reward-clip 0:1", 2, "--reward-clip"),
        ("inspect rewards.jsonl --where 'mean > 7'", 1, "no group meets --where mean > 7"),
        ("inspect rewards.jsonl --fail-on 'zero_share > 0'", 2, "no quantity named 'zero_share'"),
        ("report *.jsonl", 2, "a report of all that *.jsonl matches has no default name; give -o report.html"),
        ("report rewards.jsonl -o a.docx", 2, "unknown report format"),
        ("report rewards.jsonl -o no/such/place.html", 2, "no/such"),
        ("report rewards.jsonl -o README.svg", 2, "--force"),
        ("select rewards.jsonl --limit 1 -o chats.jsonl", 2, "--force"),
        ("report rewards.jsonl --against no.jsonl -o b.html", 1, "no.jsonl"),
    ],
)
def test_an_error_is_one_line_and_writes_nothing(line: str, status: int, message: str) -> None:
    Path("README.svg").write_text("mine")
    before = files()
    done = adv(line)
    assert done.status == status
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert message in done.err
    assert files() == before


def test_the_method_changes_the_shown_advantages() -> None:
    shown = facts_of("inspect rewards.jsonl --show decimal --method rloo")["show"]["rows"]
    assert [row["advantage"] for row in shown] == pytest.approx([-2 / 3, 2 / 3, 2 / 3, -2 / 3])


# --- select and report -------------------------------------------------------------------------------------


def test_chosen_rows_go_to_stdout_and_the_summary_to_stderr() -> None:
    done = adv("select rewards.jsonl -w 'std > 0' -o -")
    assert len(done.rows) == 36
    assert "7 of 10 kept (70%)" in done.err
    assert "36 rows of 7 prompts" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-g prompt_id,step -w 'size > 0'", "12 rows of 2 prompts"),  # drawn in two steps each
        ("-g prompt_id,step -w 'step == 0'", "6 rows of 2 prompts"),
        ("-g prompt_id,step -w 'step == 0' --per-group 1", "2 rows of 2 prompts"),
        ("-g step,prompt_id -w 'size > 0' --limit 1", "3 rows of 1 prompt"),
        ("--group-size 3 -w 'size > 0'", "12 rows of 4 prompts"),  # blocks that no key names
    ],
)
def test_the_summary_of_select_says_how_many_rows_of_how_many_prompts(words: str, said: str) -> None:
    rows = [{"prompt_id": p, "step": step, "reward": at} for step in range(2) for p in "ab" for at in range(3)]
    Path("many.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = adv(f"select many.jsonl {words} -o out.jsonl")
    assert said in done.out
    assert json.loads(adv(f"select many.jsonl {words} -o out.jsonl --force --json").out)["kept_prompts"] == int(
        said.split()[3]
    )


def test_a_choice_is_shown_as_json_and_to_a_file() -> None:
    found = facts_of("select rewards.jsonl -w 'std > 0' -o a.jsonl --summary a.json")
    assert found == json.loads(Path("a.json").read_text())
    assert found["kept_rows"] == 36
    assert found["dropped"][0]["reason"] == "std > 0 is false"


def test_options_of_compute_in_a_shared_configuration_are_ignored() -> None:
    Path("grpo.toml").write_text(
        'group = "prompt_id"\nreward = "reward"\nsummary = "run.json"\nper-token = true\ntokens = "ids"\n'
    )
    done = ran("inspect rewards.jsonl --config grpo.toml")
    assert done.out.startswith("options        grpo.toml\ninput ")
    assert not Path("run.json").exists()
    assert adv("select rewards.jsonl --limit 1 --config grpo.toml --quiet").out == ""
    assert len(Path("rewards.selected.jsonl").read_text().splitlines()) == 8


@pytest.mark.parametrize(("named", "name"), [(".", "inner"), ("rewards.jsonl", "rewards")])
def test_a_report_is_written_next_to_its_input_or_has_the_name_of_this_folder(named: str, name: str) -> None:
    pytest.importorskip("altair")
    Path("inner").mkdir()
    shutil.copy("rewards.jsonl", "inner")
    done = ran(f"report {named}", cwd=Path("inner"))
    assert done.out.startswith(f"{name}.report.html: 1.0 MB, 46 rows in 10 groups")
    assert Path(f"inner/{name}.report.html").read_text().startswith("<!doctype html>")


def test_a_report_against_another_run_draws_what_changed() -> None:
    pytest.importorskip("altair")
    ran("report rewards.jsonl --against rewards.parquet -o a.html")
    page = Path("a.html").read_text()
    assert "rewards.jsonl shows no clear difference from rewards.parquet on 10 prompts" in page
    assert 'id="figure-run_rates"' in page
    assert 'id="figure-run_changes"' in page
    assert "gained most" not in page


def test_a_report_without_its_extra_says_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_cli.cli.report.NEEDS", ("no_such_library",))
    done = adv("report rewards.jsonl -o a.html")
    assert done.status == 2
    assert not Path("a.html").exists()
    assert done.err.rstrip().endswith(install("report"))


# --- frames ------------------------------------------------------------------------------------------------


@pytest.fixture
def frame() -> pl.DataFrame:
    return pl.read_parquet("rewards.parquet")


@pytest.mark.parametrize("kind", ["polars", "lazy", "pandas", "pyarrow"])
def test_a_frame_of_any_kind_is_inspected_and_selected_from(kind: str, frame: pl.DataFrame) -> None:
    kinds = {"polars": frame, "lazy": frame.lazy(), "pandas": frame.to_pandas(), "pyarrow": frame.to_arrow()}
    look = grpo_cli.inspect(kinds[kind], sort="mean", top=2)
    assert look.facts["rows"] == 46
    assert look.groups.filter("constant")["prompt_id"].to_list() == ["multiply-6-7", "fibonacci-50"]
    chosen = grpo_cli.select(kinds[kind], where="std > 0", per_group=2, pick="random", seed=4)
    assert len(chosen.frame) == chosen.facts["kept_rows"] == 14
    assert type(chosen.frame) is type(kinds["polars" if kind == "lazy" else kind])


def test_texts_of_a_lazy_frame_are_read_only_on_request(frame: pl.DataFrame) -> None:
    assert grpo_cli.inspect(frame.lazy()).facts["duplicates"] is None
    assert grpo_cli.inspect(frame.lazy(), duplicates=True).facts["duplicates"]["rows"] == 4
    assert grpo_cli.inspect(frame).facts["duplicates"]["rows"] == 4


def test_an_inspection_has_text_and_html_and_draws_the_figures_of_the_report(frame: pl.DataFrame) -> None:
    pytest.importorskip("altair")
    look = grpo_cli.inspect(frame)
    assert "solve rate" in str(look)
    assert look.show("hex-255")["rows"][0]["status"] == "singleton"
    assert look.verdicts == look.facts["verdicts"]
    html = look._repr_html_()
    wanted = ("What it means", "no gradient", "<svg", "Solve rates", "hex-255")
    assert [words for words in wanted if words not in html] == []
    assert look.chart("rewards").to_dict()["mark"]["type"] == "bar"
    assert look.chart("advantages").to_dict()["title"] == "Advantages, grpo"
    with pytest.raises(UnknownName, match="did you mean 'rewards'"):
        look.chart("reward")


def test_a_notebook_without_the_extra_shows_the_text(frame: pl.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    for name in [name for name in sys.modules if name.startswith("grpo_cli.render.report")]:
        monkeypatch.delitem(sys.modules, name)
    html = grpo_cli.inspect(frame)._repr_html_()
    assert html.startswith("<pre")
    assert "solve rate" in html
    assert "\x1b" not in html


def test_a_report_without_a_path_is_a_page_that_a_notebook_shows(frame: pl.DataFrame) -> None:
    pytest.importorskip("altair")
    page = grpo_cli.report(frame)
    assert page.html.startswith("<!doctype html>")
    assert "What it means" in page.html
    assert page._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')


def test_an_option_of_another_command_is_refused(frame: pl.DataFrame) -> None:
    for call, name in ((grpo_cli.inspect, "output"), (grpo_cli.select, "pass_at"), (grpo_cli.inspect, "reward_clip")):
        with pytest.raises(UnknownName, match=f"no option named '{name}'"):
            call(frame, **dict[str, Any]({name: "x"}))


# --- gates and conditions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", ["", "--json", "--quiet", "--format csv", "--show hex-255"])
def test_inspect_is_a_gate_that_shows_what_was_asked_for_and_then_fails(more: str) -> None:
    plain = adv(f"inspect rewards.jsonl {more}")
    passed = adv(f"inspect rewards.jsonl {more} --fail-on 'zero_variance_share > 0.5 or groups < 10'")
    assert passed.status == 0
    assert passed.out == plain.out
    assert passed.err == plain.err
    failed = adv(f"inspect rewards.jsonl {more} --fail-on 'zero_variance_share > 0.2'")
    assert failed.status == 3
    assert failed.out == plain.out
    said = "--fail-on condition 'zero_variance_share > 0.2' holds; zero_variance_share is 0.222222\n"
    assert failed.err.endswith(said)


def test_a_gate_of_inspect_has_the_quantities_of_compute_that_need_no_advantages() -> None:
    computed = adv("compute rewards.jsonl -o - --quiet --fail-on 'reward_mean > 0.1'")
    looked = adv("inspect rewards.jsonl --quiet --fail-on 'reward_mean > 0.1'")
    assert looked.err.split("; ")[-1] == computed.err.split("; ")[-1] == "reward_mean is 0.582913\n"


@pytest.mark.parametrize(
    ("where", "more"),
    [("0.1 <= mean <= 0.9", "--by sample"), ('prompt_id != "hex-255" and size > 2', "--scale batch --whiten sample")],
)
def test_groups_that_meet_a_condition_are_inspected_as_the_file_that_select_makes_of_them(
    where: str, more: str
) -> None:
    ran(f"select rewards.jsonl --where '{where}' -o kept.jsonl -q")
    wanted = facts_of(f"inspect kept.jsonl {more}")
    found = facts_of(f"inspect rewards.jsonl --where '{where}' {more}")
    assert any(note.startswith(f"where {where}: ") for note in found["notes"])
    assert f" where {where}: " in adv(f"inspect rewards.jsonl --where '{where}'").out
    for name in ("inputs", "notes"):
        del wanted[name], found[name]
    assert found == wanted


def test_groups_that_meet_a_condition_are_found_beside_rows_that_were_left_out() -> None:
    some = "rewards.jsonl --group-size 4 --partial drop --where 'std > 0'"
    ran(f"select {some} -o kept.jsonl -q")
    wanted = facts_of("inspect kept.jsonl --group-size 4")
    found = facts_of(f"inspect {some}")
    for name in ("rows", "groups", "reward", "zero_variance", "difficulty", "length", "duplicates", "effective_rows"):
        assert found[name] == wanted[name]


def test_tables_and_texts_of_groups_that_meet_a_condition_are_their_own() -> None:
    whole = table("inspect rewards.jsonl")
    some = table("inspect rewards.jsonl --where 'std > 0'")
    assert len(some) == 7
    assert all(row in whole for row in some)
    key = some[2]["prompt_id"]
    # A number is that of the list which the same options show.
    alone, among = (
        re.sub(r"#\d+", "#", adv(f"inspect rewards.jsonl {more} --show {key} --scale none").out)
        for more in ("", "--where 'std > 0'")
    )
    assert alone == among
    assert key in alone


# --- numbers of the text -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("last", "larger"), [([0, 0.5], "100%"), ([0.5, 0.5], ">=75%")])
def test_a_lower_bound_of_100_percent_has_no_sign(last: list[float], larger: str) -> None:
    groups = [[0, 0.1, 0.1, 0.3]] * 3 + [last]
    write("in.jsonl", [{"prompt_id": k, "reward": reward} for k, group in enumerate(groups) for reward in group])
    shown = adv("inspect in.jsonl", COLUMNS="100").out
    (line,) = re.findall(r"with a gradient (.+)", shown)
    assert line.split()[1:] == [larger]  # 4 rows, where one group has 2
    assert (">= lower bound" in shown) == larger.startswith(">=")


def test_categories_have_bars_of_their_share_without_a_gradient_and_names_at_the_left() -> None:
    constant = {"code": 0, "mathematics": 4, "web": 3}  # of the four groups of each
    rows = [
        {"prompt_id": f"{env}{k}", "env": env, "reward": reward if k >= count else 1}
        for env, count in constant.items() for k in range(4) for reward in (0, 1)
    ]  # fmt: skip
    write("in.jsonl", rows)
    printed = adv("inspect in.jsonl --by env", COLUMNS="80").out
    lines = [line for line in printed.splitlines() if re.match(r"(mathematics|web|code) ", line)]
    assert [line.split()[0] for line in lines] == ["mathematics", "web", "code"]
    bars = [line.count("█") for line in lines]
    assert bars[0] > bars[1] > bars[2] == 0
