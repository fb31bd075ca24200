"""What people read: true, narrow, without colour, and safe to print."""

from __future__ import annotations

import io
import math
import re
import threading
import time
from dataclasses import fields
from itertools import cycle, islice, takewhile
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pytest
from rich.cells import cell_len
from rich.console import Console

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.extra_columns import ROLES
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.plan_parts import ORDERED, PARTS
from grpo_cli.engine.score import Scored, score
from grpo_cli.formats.frame import FRAME, FrameReader
from grpo_cli.read.build_table import read
from grpo_cli.read.layout import layout
from grpo_cli.read.narrow import Narrow
from grpo_cli.read.tables import Binding, Table
from grpo_cli.render import explain, methods, plan_text, summary
from grpo_cli.render.distribution import bars
from grpo_cli.render.progress import phases
from grpo_cli.render.text import Sheet, column, exact, markdown_table, number
from grpo_cli.runs.compute_files import Facts
from grpo_cli.stats import facts
from grpo_cli.values.key_text import cut
from grpo_cli.write.write_outputs import Computed
from tests.support.plans import plan_from_dict

if TYPE_CHECKING:
    from collections.abc import Sequence

LONG: Final = "what-is-the-" + "very-" * 20 + "long-question"
KEYS: Final = ["a"] * 4 + ["b"] * 3 + ["c"] * 2 + [LONG] * 3 + ["数学问题" * 12] * 14 + ["lone"]
REWARDS: Final = [1.0, 0.0, 0.5, 1.0, 1, 1, 1, 0, 0, 0.1, 0.1, 0.1, *(i % 3 / 2 for i in range(14)), 1.0]
ROLE_VALUES: Final[dict[str, Any]] = {
    "references": [[0.0, 1.0]],
    "truncated": [True, False],
    "rollout": [f"r{i}" for i in range(9)],
    "state": ["s", "t"],
    "role": ["x"],
}


def settings(text: str) -> dict[str, str]:
    return dict(setting.split("=", 1) for setting in text.split(", ") if setting)


PLANS: Final[dict[str, dict[str, str]]] = {
    **{name: {"estimator.name": name} for name in ESTIMATORS},
    "expression": settings("estimator.name=expression, estimator.sql=(reward - mean) / (std + epsilon)"),
    "dropped": settings("groups.zero_variance=drop, groups.min_size=3, groups.std_threshold=0.1"),
    "whitened": settings("post.whiten.level=token, post.clip.hi=2.0, alone.result=nan"),
    "shaped": settings(
        "shape.affine.shift=1, shape.overlong.max=12, shape.overlong.buffer=4, shape.rank.penalty=0.2, "
        "shape.kl.coef=0.1, shape.truncated.factor=0.5, shape.length.output=0.3, shape.clip.lo=-1"
    ),
    "batch": settings("estimator.name=rloo, estimator.baseline_level=batch, divisor.level=batch, divisor.of=residual"),
    "null": settings("groups.zero_variance=null, alone.result=drop, rewards.missing=exclude"),
}
# Values that differ from every default, for fields whose type alone does not give one.
OTHER: Final[dict[str, Any]] = {
    **settings(
        "states=batch, measure=mad, by=peak, take=last, combine=normalize, component_missing=zero, missing=exclude, "
        "level=constant, of=residual, baseline=zero, sd=nan, result=drop, zero_variance=drop, small=drop, "
        "statistics=kept, beyond=zero, numerator=raw, masked=count, form=reweight, "
        "k=5, ddof=0, min_size=5, per_step=true, only_positive=true, divide=false, negative_only=true"
    ),
    "weights": (0.3, 0.7),
    "std_threshold": 0.37,
}


def frame(keys: Sequence[str] = KEYS, rewards: Sequence[float | None] = REWARDS) -> pl.DataFrame:
    count = len(keys)
    numbers = dict.fromkeys(ROLES, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0))
    numbers["logprob"] = (-7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0)
    values = {"other": [None, 1, 0, 1, 0], **numbers, **ROLE_VALUES}
    roles = {name: [*islice(cycle(some), count)] for name, some in values.items()}
    return pl.DataFrame({"prompt_id": keys, "reward": rewards, **roles}, strict=False)


def found(plan_of: str | dict[str, str], table: pl.DataFrame | None = None) -> tuple[Facts, Scored, Narrow]:
    plan = Plan.of(settings(plan_of) if isinstance(plan_of, str) else plan_of)
    several = plan.rewards.combine == "normalize" or len(plan.rewards.weights) > 1
    roles = {need: need for need in plan.needs}
    binding = Binding(rewards=("reward", "other") if several else ("reward",), roles=roles)
    rows = frame() if table is None else table
    reader = FrameReader(rows.columns, lambda names, head: rows.select(names)[:head])
    narrow = read(layout([Table(FRAME, reader)], binding), plan)
    scored = score(plan, narrow.table, intermediate=True)
    shown = Facts(
        facts.summarize(scored, narrow), preset=None, inputs=["rewards.jsonl"], outputs=["out.jsonl"], more_columns=(),
        advantage_column="advantage", dropped_rows=int((~scored.frame[".kept"]).sum()), copied_rows=0, seconds=0.123,
    )  # fmt: skip
    return shown, scored, narrow


def console(width: int = 80) -> Console:
    return Console(file=io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), width=width, color_system=None)


def printed(screen: Console) -> str:
    screen.file.flush()
    return screen.file.buffer.getvalue().decode()  # type: ignore[attr-defined,no-any-return]


def summed(plan_of: str | dict[str, str], table: pl.DataFrame | None = None, width: int = 80) -> str:
    screen = console(width)
    summary.render(found(plan_of, table)[0], screen)
    return printed(screen)


def explained(plan_of: str | dict[str, str], table: pl.DataFrame | None = None) -> str:
    screen = console()
    facts, scored, narrow = found(plan_of, table)
    explain.whole(facts, screen, parts=[Computed(narrow, scored, None)])
    return printed(screen)


def flat(text: str) -> str:
    return " ".join(text.split())


def assert_readable(text: str, width: int = 80) -> None:
    assert max(map(cell_len, text.splitlines())) <= width
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


# --- shape of what is printed ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANS)
def test_a_summary_and_an_explanation_fit_80_columns_without_colour(name: str) -> None:
    assert_readable(summed(PLANS[name]))
    text = explained(PLANS[name])
    assert_readable(text)
    assert text.endswith("nothing was written\n")


def test_a_narrow_terminal_is_kept_to_as_well() -> None:
    assert_readable(summed(PLANS["shaped"], width=40), width=40)


def test_colour_adds_nothing_to_the_words_and_warnings_come_last() -> None:
    facts = found("")[0].warned(["look here"])
    plain = console()
    colourful = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="truecolor")
    for screen in (plain, colourful):
        summary.render(facts, screen)
    assert "\x1b" in shown(colourful)
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown(colourful)) == printed(plain)
    assert printed(plain).splitlines()[-1].split() == ["warning:", "look", "here"]


def test_keys_cannot_steer_the_terminal() -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07evil\nkey [red]x[/red]"
    table = frame([hostile] * 3 + ["b"] * 3, [1, 1, 1, 0, 1, 0])
    for text in (summed("", table), explained("", table.reverse())):
        assert not {"\x1b", "\x07"} & set(text)
    assert "[red]x[/red]" in flat(summed("", table))


# --- what a summary says -----------------------------------------------------------------------------------


def test_zero_variance_is_shown_in_words() -> None:
    text = flat(summed(""))
    assert "3 of 5 groups have no gradient (60%): 1 always solved, 1 never solved, 1 all equal between" in text
    assert "b (all 1); c (all 0); what-is-the-" in text
    assert "lone (reward 1)" in text


def test_a_formula_that_is_not_centred_does_not_claim_a_lost_gradient() -> None:
    text = flat(summed("estimator.name=reinforce"))
    assert "carry no gradient" not in text
    assert "equal rewards 3 of 5 groups have equal rewards" in text


def test_unscorable_rows_are_counted_and_what_they_get_is_among_the_rules() -> None:
    text = flat(summed("rewards.missing=exclude", frame([*"aaabbb"], [0, 1, None, 1, None, 0])))
    assert "rows without a reward are left out" in text
    assert "2 rows without a reward" in text


def test_there_is_a_summary_even_if_no_row_could_be_scored() -> None:
    text = summed("rewards.missing=exclude", frame(["a", "a"], [None, None]).cast({"reward": pl.Float64}))
    assert "no reward" in text
    assert "no finite advantage" in text


def drawn_bars(*values: float) -> list[str]:
    return bars(facts.distribution(pl.Series(values, dtype=pl.Float64)))


def test_bars_are_listed_when_few_and_drawn_on_one_line_when_many() -> None:
    noise = 0.1 + 0.2 - 0.3
    assert drawn_bars(noise, 1.0, 1.0) == ["0  1  " + "█" * 15, "1  2  " + "█" * 30]
    sevenths = [k / 7 for k in range(7)]
    assert drawn_bars(*sevenths) == ["0 |███████| 0.8571   one bar per value (7 values)"]
    assert drawn_bars(*[k / 30 for k in range(31)]) == ["0 |███████████████▄| 1"]
    assert drawn_bars() == []


def test_numbers_are_short() -> None:
    shown = [number(value) for value in (0.1 + 0.2, 1 / 3, 12345.6, 999.96, -0.0, 1e9 + 1, 1e-6, 1e20)]
    assert shown == ["0.3", "0.3333", "12,346", "1,000", "0", "1,000,000,001", "1e-06", "1e+20"]
    assert [number(math.nan), number(math.inf), number(None)] == ["NaN", "inf", "-"]


def test_numbers_of_a_column_have_as_many_decimals_as_the_largest_leaves() -> None:
    assert column([78.75, 80.0]) == ["78.75", "80.00"]
    assert column([123.4, 1.5]) == ["123.4", "1.5"]
    assert column([9999.7, 1.5]) == ["10000", "2"]  # five digits, once it is rounded


def test_a_table_of_markdown_has_any_names_and_no_bar_inside_a_cell() -> None:
    table = markdown_table(["changed", "changed", "n"], [["a|b", None, 1 / 3], ["c", "d\n", 12345678]], {"n"})
    assert table == "| changed | changed | n |\n| --- | --- | --: |\n| a\\|b |  | 0.333333 |\n| c | d | 12345678 |\n"


def test_a_long_key_loses_its_middle() -> None:
    assert cut(LONG, 21) == "what-is-the-ve…estion"
    assert cell_len(cut("数学" * 20, 20)) <= 20


# --- the formula -------------------------------------------------------------------------------------------


def described(text: str) -> list[str]:
    return plan_text.describe(Plan.of(settings(text)))


def test_the_default_is_shown_in_three_lines() -> None:
    facts = ["A = (r - mean) / (std + 1e-06)", "std of the group's rewards, ddof 1", "a group of one row gets 0"]
    assert described("") == facts


@pytest.mark.parametrize("name", ["grpo-loo", "batch-norm", "gdpo"])
def test_a_divisor_is_shown_once(name: str) -> None:
    text = " ".join(line for line in described(f"estimator.name={name}") if "mu" not in line)
    assert text.count("+ 1e-06") == 1
    assert "epsilon" not in text


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_parameter_of_a_method_is_in_its_description(name: str) -> None:
    text = "\n".join(plan_text.describe(Plan.of(PLANS[name])))
    for param in ESTIMATORS[name].params:
        is_shown = param.name in text or (param.field and exact(param.default) in text)
        assert is_shown or name == "expression"


STEPS: Final = {f"{part}.{op}": kind for part, kinds in ORDERED.items() for op, kind in kinds.items()}


@pytest.mark.parametrize(
    ("setting", "default"),
    [(f"{part}.{f.name}", f.default) for part, kind in [*PARTS.items(), *STEPS.items()] for f in fields(kind)],
)
def test_every_field_that_differs_from_its_default_is_described(setting: str, default: Any) -> None:
    name = setting.rpartition(".")[2]
    value = {"post.whiten.level": "token", "shape.overlong.max": 9.5}.get(setting) or OTHER.get(name, 0.123)
    base = {"shape.overlong.max": 8.0} if "overlong" in setting else {}
    before = Plan.of({setting: default} | base)
    after = Plan.of(base | {setting: value})
    seen = plan_text.describe(after)
    assert after != before
    assert seen != plan_text.describe(before)
    if isinstance(value, float):
        assert exact(value) in "\n".join(seen)


def test_fields_that_nothing_reads_are_listed_as_without_effect() -> None:
    unread = "divisor.inside=0.5, divisor.floor=0.5, divisor.epsilon=0.5, divisor.constant=0.5"
    facts = described(f"estimator.name=rloo, {unread}")
    assert facts[-1] == f"without effect: {unread.replace('=', ' ')}"


def test_the_level_of_the_baseline_is_described() -> None:
    facts = described("estimator.baseline_level=batch, divisor.level=batch")
    assert facts[0] == "A = (r - batch mean) / (batch std + 1e-06)"


def test_a_discounted_sum_reads_as_a_sentence() -> None:
    half = described("post.discount.gamma=0.5")[-1]
    whole = described("post.discount.gamma=1")[-1]
    assert "from the last row of a rollout to its first: A + 0.5 times the A of the next row" in half
    assert whole.endswith(": A + the A of the next row")


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_comes_back_from_its_dict(name: str) -> None:
    plan = Plan.of(PLANS[name])
    assert plan_from_dict(plan.as_dict()) == plan


# --- the worked group --------------------------------------------------------------------------------------


def table_of(text: str) -> list[dict[str, str]]:
    head, *lines = re.split(r"^(?= *row .*advantage)", text, flags=re.MULTILINE)[1].splitlines()
    rows = takewhile(lambda line: line and not line.startswith("..."), lines)
    return [dict(zip(head.split(), line.split(), strict=True)) for line in rows]


@pytest.mark.parametrize("name", ["grpo", "rloo", "lite-ppo", "opo", "quantile", "grpo-loo", "shaped", "batch"])
def test_the_worked_group_recomputes_to_the_advantage_shown(name: str) -> None:
    rows = table_of(explained(PLANS[name]))
    assert len(rows) == 4
    assert any(float(row["residual"]) for row in rows)
    for row in rows:
        divides = PLANS[name].get("estimator.name") != "grpo-loo" or float(row["divisor"]) > 1e-5
        divisor = float(row["divisor"]) if divides else 1.0
        assert float(row["residual"]) / divisor == pytest.approx(float(row["advantage"]), abs=2e-3)


@pytest.mark.parametrize(
    ("plan", "weighs", "whitens"),
    [
        ("estimator.name=reinforce++-baseline", False, True),
        ("weight.by=peak", True, False),
        ("weight.by=std, post.whiten.level=sample", True, True),
    ],
)
def test_weights_and_whitening_of_the_worked_group_lead_to_the_advantage_shown(
    plan: str, *, weighs: bool, whitens: bool
) -> None:
    text = explained(plan)
    found = re.search(r"mu (\S+)  divisor (\S+)", text)
    assert bool(found) == whitens
    mu, sd = map(float, found.groups()) if found else (0, 1)
    rows = table_of(text)
    assert ("weight" in rows[0]) == weighs
    for row in rows:
        weighted = float(row["scaled"]) * float(row.get("weight", 1))
        assert (weighted - mu) / sd == pytest.approx(float(row["advantage"]), abs=2e-3)


def test_combined_estimates_are_worked_out_column_by_column() -> None:
    text = explained("estimator.name=gdpo, rewards.weights=1.0,0.5")
    assert "z(reward)" in text
    assert "z(other)" in text
    assert "A = z(reward) + 0.5 z(other)" in flat(text)


def test_a_large_group_is_cut_after_twelve_rows() -> None:
    text = explained("", frame(["a"] * 64, [float(i % 2) for i in range(64)]))
    assert len(table_of(text)) == 12
    assert "... 52 more rows" in text


def test_a_constant_group_is_worked_out_when_there_is_no_other() -> None:
    rows = table_of(explained("", frame([*"aaab"], [1, 1, 1, 0])))
    assert [row["advantage"] for row in rows] == ["0", "0", "0"]


def test_unscorable_rows_keep_their_place_in_the_worked_group() -> None:
    rows = table_of(explained("rewards.missing=exclude", frame([*"aaaa"], [1, None, 0, 1])))
    assert [row["status"] for row in rows] == ["scored", "unscorable", "scored", "scored"]
    assert rows[1]["reward"] == rows[1]["advantage"] == "-"


# --- methods -----------------------------------------------------------------------------------------------


def test_every_parameter_and_flag_is_explained_in_80_columns() -> None:
    listed = console()
    methods.listing(listed)
    assert_readable(printed(listed))
    for name, method in ESTIMATORS.items():
        screen = console()
        methods.explain(name, screen)
        assert_readable(printed(screen))
        text = flat(printed(screen))
        for param in method.params:
            assert f"--param {param.name}=" in text
            assert flat(param.help) in text
        for need in method.needs:
            assert ROLES[need].flag in text


@pytest.mark.parametrize("width", range(30, 60))
def test_a_name_that_has_a_colour_is_on_one_line_and_keeps_it(width: int) -> None:
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="standard", no_color=False)
    Sheet(screen).row("no gradient", "2 of 9 groups have no gradient (22.2%): 1 always solved, 1 never solved")
    assert "\x1b[31mnever solved\x1b[0m" in shown(screen)
    assert "\x1b[32malways solved\x1b[0m" in shown(screen)


# --- progress ----------------------------------------------------------------------------------------------


def assert_erased(output: str) -> None:
    """The only line is written over each time, and in the end the cursor goes up to it and takes it away."""
    first, last = output.split("\n")
    assert re.fullmatch(r"\x1b\[\?25l[^\x1b\r]*(\r\x1b\[2K[^\x1b\r]*)*", first)
    assert last == "\x1b[?25h\r\x1b[1A\x1b[2K"


def terminal() -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=True, force_interactive=True, color_system=None)


def gone(before: int) -> bool:
    """Whether every thread has ended; rich's own needs a moment to notice that it should."""
    deadline = time.monotonic() + 2
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    return threading.active_count() <= before


def shown(screen: Console) -> str:
    return screen.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_a_long_run_shows_its_phase_and_leaves_nothing_behind() -> None:
    screen = terminal()
    before = threading.active_count()
    with phases(screen, after=0.01) as phase:
        phase("reading")
        time.sleep(0.3)
    assert "reading" in shown(screen)
    assert_erased(shown(screen))
    assert gone(before)


def test_a_failed_run_leaves_nothing_behind_either() -> None:
    screen = terminal()

    def failing() -> None:
        with phases(screen, after=0.01) as phase:
            phase("computing")
            time.sleep(0.15)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert_erased(shown(screen))


def test_a_short_run_shows_nothing_and_stops_its_timer() -> None:
    screen = terminal()
    before = threading.active_count()
    with phases(screen) as phase:
        phase("reading")
    assert shown(screen) == ""
    assert gone(before)


def test_off_a_terminal_there_is_no_progress() -> None:
    screen = Console(file=io.StringIO())
    with phases(screen, after=0.0) as phase:
        phase("reading")
        time.sleep(0.05)
    assert shown(screen) == ""
