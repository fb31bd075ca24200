"""What Python users call: frames of every kind in, the same kind out, the options of the command line."""

from __future__ import annotations

import inspect
import json
import pickle
import pydoc
import re
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_type

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import grpo_cli
import grpo_cli.twinkle
from grpo_cli.api.calls import in_keywords
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import DataError, InputChanged, UnknownName, UsageError
from grpo_cli.options.table import COMPUTED, OPTIONS
from grpo_cli.read.groups import group
from grpo_cli.read.open_tables import find_inputs, open_tables
from grpo_cli.read.tables import Binding, whole
from tests.support import keywords
from tests.support.command import facts_of
from tests.support.jobs import NAN, frame, write
from tests.support.schema_files import WRITERS

REWARDS = [0.0, 2.0, 5.0, 5.0]
KEYS = ["a", "a", "b", "b"]
CENTRED = [-1.0, 1.0, 0.0, 0.0]
FRAME = frame(REWARDS, KEYS)
LISTS = pl.read_ndjson(
    b"""
{"prompt_id": "a", "rewards": [0.0, 2.0], "rollouts": [{"r": 1.0}]}
{"prompt_id": "b", "rewards": [5.0, 5.0], "rollouts": [{"r": 0.0}]}
""".strip()
)


def refused(frame: pl.DataFrame, name: str) -> pl.LazyFrame:
    """A lazy frame with a column that must not be computed."""

    def boom(_: pl.Series) -> pl.Series:
        raise AssertionError("a column that is not needed was collected")

    return frame.lazy().with_columns(pl.lit("text").map_batches(boom, return_dtype=pl.String).alias(name))


# --- kinds of frames ---------------------------------------------------------------------------------------


if TYPE_CHECKING:  # checked by mypy: an editor knows what comes back
    assert_type(grpo_cli.advantages(FRAME), pl.Series)
    assert_type(grpo_cli.compute("rewards.parquet"), grpo_cli.Result[pl.Series])
    assert_type(grpo_cli.compute(FRAME.to_pandas()).advantages, pd.Series[Any])
    assert_type(grpo_cli.select(FRAME.lazy()), grpo_cli.Selection[pl.DataFrame])
    assert_type(grpo_cli.select(FRAME.to_pandas()), grpo_cli.Selection[pd.DataFrame])


@pytest.mark.parametrize("data", [FRAME, refused(FRAME, "completion")], ids=type)
def test_polars_comes_back_as_a_polars_series(data: Any) -> None:
    got = grpo_cli.advantages(data, method="dr-grpo")
    assert isinstance(got, pl.Series)
    assert got.name == "advantage"
    assert got.dtype == pl.Float64
    assert got.to_list() == CENTRED


def test_pandas_keeps_its_index_and_rows_without_an_advantage_are_nan_of_a_float_column() -> None:
    data = FRAME.to_pandas().set_index(pd.Index(["w", "b", "b", "a"]))
    result = grpo_cli.compute(data, method="dr-grpo", zero_variance="drop")
    advantages = result.advantages
    assert isinstance(advantages, pd.Series)
    assert advantages.name == "advantage"
    assert advantages.dtype == "float64"
    assert advantages[:2].tolist() == [-1.0, 1.0]
    assert advantages[2:].isna().all()
    assert advantages.index.equals(data.index)
    status = result.status
    assert isinstance(status, pd.Series)
    assert status.name == "status"
    assert status.tolist() == ["scored", "scored", "zero-variance", "zero-variance"]
    assert status.index.equals(data.index)


@pytest.mark.parametrize("dtype", ["Float64", "float32", "object", "float64[pyarrow]"])
def test_pandas_rewards_of_any_dtype(dtype: Any) -> None:
    data = pd.DataFrame({"prompt_id": pd.Categorical(KEYS), "reward": pd.Series(REWARDS).astype(dtype)})
    assert grpo_cli.advantages(data, method="dr-grpo").tolist() == CENTRED


@pytest.mark.parametrize("name", ["model", "env", "rollout"])
def test_python_objects_in_columns_that_only_checks_read_are_left_alone(name: str) -> None:
    columns = {"prompt_id": [1, 1], "turn": [0, 0], "reward": [1.0, 0.0]}
    data = pd.DataFrame({**columns, name: [{"a": 1}, "x"]})
    assert grpo_cli.advantages(data, method="dr-grpo").tolist() == [0.5, -0.5]
    objects = pl.Series(name, [object(), object()], dtype=pl.Object)
    assert grpo_cli.advantages(pl.DataFrame({**columns, name: objects}), method="dr-grpo").to_list() == [0.5, -0.5]


def test_columns_of_one_name_are_refused_if_they_are_read() -> None:
    columns = [["a", "a"], [1.0, 0.0], [0.0, 1.0], [2.0, 1.0]]
    twice = ["prompt_id", "reward", "other", "reward"]
    unread = ["prompt_id", "reward", "other", "other"]
    table = pa.table(columns, names=twice)
    for given in (table, table.to_pandas()):
        with pytest.raises(DataError, match="frame: columns 2 and 4 are named 'reward'"):
            grpo_cli.compute(given)
    table = pa.table(columns, names=unread)
    for given in (table, table.to_pandas()):
        assert len(grpo_cli.advantages(given)) == 2


def test_pandas_columns_need_not_be_named_by_text_and_the_frame_is_left_as_it_was() -> None:
    data = pd.DataFrame({0: KEYS, 1: REWARDS, "prompt": KEYS})
    before = data.copy()
    assert grpo_cli.advantages(data, group="0", reward="1", method="dr-grpo").tolist() == CENTRED
    with pytest.raises(DataError, match="columns: 0, 1"):
        grpo_cli.advantages(data)
    pd.testing.assert_frame_equal(data, before)


ARROW = FRAME.to_arrow()


@pytest.mark.parametrize(
    "data", [pa.concat_tables([ARROW.slice(0, 3), ARROW.slice(3)]), ARROW.to_batches()[0]], ids=type
)
def test_pyarrow_comes_back_as_an_array(data: Any) -> None:
    result = grpo_cli.compute(data, method="dr-grpo")
    assert isinstance(result.advantages, pa.Array)
    assert result.advantages.type == pa.float64()
    assert result.advantages.to_pylist() == CENTRED
    assert result.status.to_pylist() == ["scored"] * 4


@dataclass
class Dataset:
    """What a Dataset of Hugging Face has of names and rows: a table, and indices of the rows that were chosen."""

    table: pa.Table
    rows: Sequence[int]
    arrow: bool = False

    @property
    def column_names(self) -> list[str]:
        return list(self.table.column_names)

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    def with_format(self, kind: str) -> Dataset:
        return replace(self, arrow=kind == "arrow")

    def select_columns(self, names: list[str]) -> Dataset:
        return replace(self, table=self.table.select(names))

    def select(self, rows: Any) -> Dataset:
        return replace(self, rows=[self.rows[row] for row in rows])

    def __getitem__(self, key: slice) -> Any:
        assert self.arrow, "rows of Python are never asked for"
        return self.table.take(self.rows[key])


def test_a_dataset_is_read_through_arrow_with_the_rows_that_were_chosen_of_it() -> None:
    data = Dataset(ARROW, [3, 2, 1, 0])
    got = grpo_cli.advantages(data, method="dr-grpo")
    assert isinstance(got, pa.Array)
    assert got.to_pylist() == CENTRED[::-1]
    kept = grpo_cli.select(data, where="std > 0").frame
    assert isinstance(kept, Dataset)
    assert kept.rows == [1, 0]
    assert grpo_cli.inspect(data).facts["rows"] == 4


class DatasetDict(dict[str, Dataset]):
    """Several splits by their names."""


Dataset.__module__ = "datasets.arrow_dataset"


DatasetDict.__module__ = "datasets.dataset_dict"


def test_of_a_dataset_with_splits_one_has_to_be_given() -> None:
    splits = DatasetDict(train=Dataset(ARROW, [0]), test=Dataset(ARROW, [1]))
    with pytest.raises(UsageError, match="has several splits; give one of them: train, test"):
        grpo_cli.advantages(splits)


@pytest.mark.parametrize("data", [{"prompt_id": KEYS, "reward": REWARDS}, None, FRAME["reward"]], ids=type)
def test_anything_else_is_refused(data: Any) -> None:
    with pytest.raises(UsageError, match="give a polars, pandas or pyarrow table"):
        grpo_cli.advantages(data)


# --- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "csv"])
def test_a_path_is_taken_where_a_frame_is(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"rewards.{suffix}", FRAME.to_dicts())
    assert grpo_cli.advantages(path, method="dr-grpo").to_list() == CENTRED
    assert grpo_cli.advantages(str(path), method="dr-grpo").to_list() == CENTRED
    kept = grpo_cli.select(path, where="std > 0").frame
    assert kept["prompt_id"].to_list() == ["a", "a"]
    assert [*map(float, kept["reward"])] == [0.0, 2.0]  # cells of CSV are texts
    facts = grpo_cli.inspect(path).facts
    assert facts["inputs"] == [str(path)]
    assert facts["rows"] == 4
    plans = {"a": Plan(), "b": Plan.of({"divisor.level": "none"})}
    assert grpo_cli.compare(path, plans, group="prompt_id").facts["groups"] == 2


def test_a_keyword_that_there_is_not_is_answered_with_those_that_there_are() -> None:
    unknown: dict[str, Any] = {"most": 2}  # `top` is known as `most` inside
    with pytest.raises(UnknownName, match=r"no option named 'most'.*where, solved_at, top, by, .*against"):
        grpo_cli.select(FRAME, **unknown)


@pytest.mark.parametrize(
    "call",
    [
        grpo_cli.advantages,
        lambda path: grpo_cli.select(path, where="std > 0"),
        grpo_cli.inspect,
        lambda path: grpo_cli.audit(path, column="reward"),
        lambda path: grpo_cli.compare(path, {"a": Plan(), "b": Plan()}),
    ],
)
def test_a_file_that_changes_while_it_is_read_stops_the_call(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rewards.jsonl"
    FRAME.write_ndjson(path)

    def changing(*given: Any, **options: Any) -> Any:
        found = group(*given, **options)
        FRAME[:3].write_ndjson(path)
        return found

    monkeypatch.setattr("grpo_cli.read.build_table.group", changing)
    monkeypatch.setattr("grpo_cli.guests.audit.groupings.group", changing, raising=False)
    with pytest.raises(InputChanged):
        call(path)


def test_records_with_lists_of_rollouts_are_computed_from_a_path_and_not_selected_into_a_frame(tmp_path: Path) -> None:
    path = tmp_path / "lists.jsonl"
    LISTS.drop("rollouts").write_ndjson(path)
    assert grpo_cli.advantages(path, method="dr-grpo").to_list() == CENTRED
    with pytest.raises(UsageError, match="has several rollouts, but a frame needs one per row"):
        grpo_cli.select(path, where="std > 0")
    with pytest.raises(UsageError, match="has several rollouts, but a frame needs one per row"):
        grpo_cli.advantages(FRAME, schema="rllm")


# --- schemas -----------------------------------------------------------------------------------------------

LONG = (
    "trl trl-trackio ms-swift-ray verl-v1 trinity areal verifiers tinker slime open-instruct human-eval math-rollouts"
)


@pytest.mark.parametrize("name", LONG.split())
def test_a_frame_is_grouped_as_the_file_that_it_was_read_from(name: str, tmp_path: Path) -> None:
    written = WRITERS[name](tmp_path)
    schema = grpo_cli.inspect(written.path).facts["schema"]
    assert schema is not None
    inputs, _ = find_inputs([str(written.path)])
    data = whole(open_tables(inputs, Binding()))
    for given in (data, data.lazy(), data.to_pandas(), data.to_arrow()):
        look = grpo_cli.inspect(given)
        assert look.facts["schema"] == schema
        assert sorted(look.groups["size"].to_list()) == sorted(written.sizes)


VERL = pl.read_csv(b"step,input,output,score\n1,q,a,0.0\n1,q,b,2.0\n2,q,c,5.0\n2,q,d,9.0\n")


@pytest.mark.parametrize("data", [VERL, refused(VERL, "output")], ids=type)
def test_a_frame_with_the_columns_of_verl_is_divided_by_the_step(data: Any) -> None:
    assert grpo_cli.advantages(data, method="dr-grpo").to_list() == [-1.0, 1.0, -2.0, 2.0]


def test_another_key_than_that_of_the_schema_is_taken() -> None:
    result = grpo_cli.compute(VERL, group="input", group_within="input", method="dr-grpo")
    assert result.groups["size"].to_list() == [4]
    assert result.advantages.sum() == 0
    with pytest.raises(DataError, match="several values of 'step'"):
        grpo_cli.advantages(VERL, schema="none")


# --- export, report, repr ----------------------------------------------------------------------------------

TEXTS = pl.read_csv(b"prompt_id,reward,prompt,completion\na,0.0,p,w\na,2.0,p,x\nb,5.0,q,y\nb,6.0,q,z\n")


def test_a_frame_and_a_path_are_exported_to_a_frame(tmp_path: Path) -> None:
    for data in (TEXTS, TEXTS.lazy(), TEXTS.to_pandas(), TEXTS.to_arrow()):
        pairs = grpo_cli.export(data, "pairs")
        rows = pairs.frame.select("prompt", "chosen", "rejected", "margin").rows()
        assert rows == [("p", "x", "w", 2.0), ("q", "z", "y", 1.0)]
        assert pairs.facts["records"] == 2
        assert pairs.facts["inputs"] == ["frame"]
    best = grpo_cli.export(TEXTS, to="sft", pick="all-above").frame
    assert best["completion"].to_list() == ["x", "z"]
    TEXTS.write_ndjson(tmp_path / "texts.jsonl")
    exported = grpo_cli.export(tmp_path / "texts.jsonl", "weights", method="rloo")
    assert exported.frame.equals(grpo_cli.export(TEXTS, "weights", method="rloo").frame)


def test_an_error_of_an_export_names_the_frame_and_the_keywords() -> None:
    said = "columns: prompt_id, reward.; give prompt=NAME and response=NAME"
    with pytest.raises(DataError, match=rf"^frame: no column looks like the prompt .{said}"):
        grpo_cli.export(FRAME, "sft")
    tokens = pl.read_ndjson(
        b"""
{"prompt_id": "a", "reward": 0, "tokens": [1], "mask": [1]}
{"prompt_id": "a", "reward": 1, "tokens": [1], "mask": [1, 0]}
""".strip()
    )
    with pytest.raises(DataError, match=r"^frame row 2: mask has 2 entries") as raised:
        grpo_cli.export(tokens, "tokens", tokens="tokens", mask="mask")
    assert raised.value.place == "frame row 2"


def test_a_report_is_drawn_of_a_frame_and_replaced_when_it_may(tmp_path: Path) -> None:
    made = grpo_cli.report(TEXTS, tmp_path / "report.html", method="rloo")
    assert made == tmp_path / "report.html"
    assert "<html" in made.read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="exists; add force to replace it"):
        grpo_cli.report(TEXTS, made)
    assert grpo_cli.report(TEXTS.lazy(), str(made), force=True) == made
    with pytest.raises(UsageError, match=r"unknown report format; use \.html \.png"):
        grpo_cli.report(TEXTS, tmp_path / "report.txt")


def test_a_report_of_a_frame_has_the_trend_over_its_steps_as_that_of_the_command_line_has(tmp_path: Path) -> None:
    frame = pl.read_csv(b"prompt_id,step,reward\n1,1,0.0\n1,1,1.0\n2,2,0.0\n2,2,1.0\n")
    path = tmp_path / "rows.jsonl"
    frame.write_ndjson(path)
    for given in (frame, path):
        page = grpo_cli.report(given, tmp_path / "report.html", force=True)
        assert "Mean reward over step" in page.read_text(encoding="utf-8")
        first, second = grpo_cli.inspect(given).facts["by"]["lines"]
        assert first["value"] == 1
        assert second["value"] == 2
    turns = frame.with_columns(step=pl.Series([1, 2, 1, 2]))  # steps inside of a rollout
    assert grpo_cli.inspect(turns, group="prompt_id", group_within="input").facts["by"] is None


@pytest.mark.parametrize("width", [0, 300])
def test_the_repr_of_a_look_is_what_it_means_in_thirty_lines(width: int) -> None:
    rows = "prompt_id,reward\na,0\na,2\nb,5\nb,5\n" + "".join(f"{key},0.5\n" for key in range(width))
    look = grpo_cli.inspect(pl.read_csv(rows.encode(), infer_schema_length=None))
    lines = repr(look).splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 100
    assert lines[0] == f"{4 + width} rows in {2 + width} groups by prompt_id"
    assert look.verdicts[0].split()[0] in lines[1]
    assert len(str(look).splitlines()) > len(lines)


# --- options -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"scale": "none", "clip": "-0.5:"}, "-0.5, 1, 0, 0"),
        ({"scale": "none", "set": {"shape.affine.scale": 2}}, "-2, 2, 0, 0"),
        ({"set": "divisor.level=none"}, "-1, 1, 0, 0"),
        ({"method": "asymre", "param": {"shift": 1}}, "-2, 0, -1, -1"),
        ({"scale": "none", "group": ["prompt_id"], "reward": {"reward": 3}}, "-3, 3, 0, 0"),
        ({"scale": "none", "group": ("prompt_id", "reward")}, "0, 0, 0, 0"),
        ({"scale": "none", "std_threshold": None, "batch_by": None}, "-1, 1, 0, 0"),
    ],
)
def test_options_are_those_of_the_command_line(options: dict[str, Any], wanted: str) -> None:
    assert grpo_cli.advantages(FRAME, **options).to_list() == json.loads(f"[{wanted}]")


@pytest.mark.parametrize("name", sorted(set(OPTIONS) - set(COMPUTED)))
def test_options_about_files_and_messages_are_refused_on_frames(name: str) -> None:
    options: dict[str, Any] = {name: "x"}
    with pytest.raises(UsageError, match=f"no option named '{name}'; "):
        grpo_cli.advantages(FRAME, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metod": "rloo"}, "no option named 'metod'; did you mean 'method'"),
        ({"group": ""}, "group is empty"),
        ({"epsilon": "small"}, "epsilon cannot be 'small'"),
        ({"clip": 5}, "is not two bounds"),
        ({"param": "k"}, "param='k' sets nothing; write param k=VALUE"),
    ],
)
def test_a_wrong_option_is_a_usage_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        grpo_cli.advantages(FRAME, **options)


def test_the_types_of_the_keywords_are_those_of_the_table() -> None:
    assert keywords.TARGET.read_text(encoding="utf-8") == keywords.generated(), "run: make docs"


@pytest.mark.parametrize(
    ("function", "data", "options", "message"),
    [
        ("advantages", FRAME.rename({"prompt_id": "x"}), {}, "name it with group=NAME"),
        ("advantages", FRAME, {"method": "mt-grpo"}, "name the columns with rollout=COLUMN and state_column=COLUMN"),
        ("advantages", frame([1.0, None]), {}, "missing exclude leaves such rows out"),
        ("advantages", FRAME, {"group_size": 3}, "partial keep takes it as a group; partial drop leaves it out"),
        ("advantages", FRAME, {"method": "rloo", "epsilon": 1.0}, "epsilon has no effect with scale none"),
        ("compute", LISTS, {"reward": "rollouts[].r"}, "is a path into lists, and a frame has one reward per row; make a row of each item"),
        ("compute", LISTS, {"reward": "rewards"}, "rewards has lists, but a frame needs one number per row; make a row"),
        ("inspect", LISTS, {"group": "rollouts[].r"}, "is a path into lists"),
        ("compare", FRAME, {"plans": {"one": Plan()}}, "needs two plans; give methods and presets"),
        ("select", FRAME, {}, "give where=CONDITION, top=N, top_p=P, per_group=N or limit=N"),
        ("export", FRAME, {"to": "pairs", "pick": "best"}, "pick does not apply to to pairs; it is for to sft"),
    ],
)  # fmt: skip
def test_errors_name_the_keywords_and_not_the_flags(function: str, data: Any, options: Any, message: str) -> None:
    with pytest.raises(grpo_cli.GrpoError) as error:
        getattr(grpo_cli, function)(data, **options)
    assert isinstance(error.value, ValueError)
    said = str(error.value)
    assert message in said
    assert "--" not in said
    again = pickle.dumps(error.value)
    assert str(pickle.loads(again)) == said  # noqa: S301


def test_a_group_that_there_is_not_cannot_be_shown() -> None:
    with pytest.raises(DataError, match="no group has the key 'z'") as error:
        grpo_cli.inspect(FRAME).show("z")
    assert "--" not in str(error.value)


@pytest.mark.parametrize(
    ("plans", "message"),
    [
        ("grpo", "plans cannot be 'grpo'; give methods and presets"),
        (["grpo", 1], "plans cannot be .*; give methods and presets"),
        ({"a": "grpo", "b": 1}, "plans cannot be .*; give methods and presets"),
        (["grpo", "grpo"], "a plan is named twice; append options to tell them apart: 'grpo,scale=batch'"),
        (["grpo", "rlo"], "no method named 'rlo'; did you mean 'rloo'"),
        ({"a": {"metod": "grpo"}, "b": "rloo"}, "no option of the plan 'a' named 'metod'; did you mean 'method'"),
        ({"a": {"reward": "x"}, "b": "rloo"}, "no option of the plan 'a' named 'reward'"),
        ({"a": "grpo,mehod=rloo", "b": "rloo"}, "no option of a plan named 'mehod'"),
    ],
)
def test_plans_that_are_no_plans_are_a_usage_error(plans: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        grpo_cli.compare(FRAME, plans)


NAMES = """\
Command DataError Estimator GateError GrpoError GrpoWarning Look Option Page Param Plan Result Selection Terms UnknownName UsageError \
__version__ add_columns advantages audit compare compute export inspect report select"""


def test_dir_and_help_list_the_public_names() -> None:
    assert dir(grpo_cli) == NAMES.split()
    assert grpo_cli.GRPOAdvantage is grpo_cli.twinkle.GRPOAdvantage  # the old names still work
    assert grpo_cli.RLOOAdvantage is grpo_cli.twinkle.RLOOAdvantage
    page = pydoc.plain(pydoc.render_doc(grpo_cli))
    for name in {*NAMES.split()} - {"__version__"}:
        assert re.search(rf"\b{name}\b", page), name


# --- a plan ------------------------------------------------------------------------------------------------


def test_a_plan_does_what_its_options_do() -> None:
    plan = grpo_cli.Plan.of({"estimator.name": "rloo", "divisor.level": "batch", "divisor.epsilon": 0.5})
    of_options = grpo_cli.compute(FRAME, method="rloo", scale="batch", epsilon=0.5)
    assert of_options.plan == plan
    assert grpo_cli.advantages(FRAME, plan).to_list() == of_options.advantages.to_list()
    assert grpo_cli.compute(FRAME, plan).plan is plan


def test_beside_a_plan_columns_may_be_named() -> None:
    data = pl.read_csv(b"p,r,n,s\na,0,1,1\na,2,3,1\nb,5,1,2\nb,5,1,2\n")
    plan = grpo_cli.Plan.of({"estimator.name": "opo"})
    got = grpo_cli.advantages(data, plan, group="p", reward="r", length_column="n", expect_size=2)
    assert got.to_list() == [-1.5, 0.5, 0.0, 0.0]
    of_batches = grpo_cli.Plan.of({"estimator.name": "lite-ppo", "divisor.epsilon": 0.0, "divisor.ddof": 0})
    got = grpo_cli.advantages(data, of_batches, group="p", reward="r", batch_by="s")
    assert got.to_list() == [-1.0, 1.0, 0.0, 0.0]
    with pytest.raises(UsageError, match="length_column is not read by this plan"):
        grpo_cli.advantages(data, of_batches, group="p", reward="r", length_column="n")


@pytest.mark.parametrize(
    "options",
    [
        {"method": "rloo"}, {"epsilon": 0.1}, {"missing": "exclude"}, {"clip": "0:1"}, {"set": "divisor.ddof=0"}, {"param": "k=1"},
        {"expr": "reward"}, {"reward": "reward=5"},
    ],
    ids=str,
)  # fmt: skip
def test_beside_a_plan_no_option_may_change_the_arithmetic(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"the plan and .* are both given"):
        grpo_cli.advantages(FRAME, grpo_cli.Plan.of({}), **options)


# --- warnings ----------------------------------------------------------------------------------------------

UNSOLVED = pl.read_csv(b"prompt_id,reward,error\na,0,\na,0,timeout\nb,0,\nb,0,\n")
ODD = "no group has a gradient, as the reward is 0 in all 4 scored rows"


def called(function: str, data: Any, **options: Any) -> tuple[Any, list[str]]:
    """What a function returns, and the warnings that it gives at the line that calls it."""
    with pytest.warns(grpo_cli.GrpoWarning) as given:
        result = getattr(grpo_cli, function)(data, **options)
    assert {each.filename for each in given} == {__file__}
    return result, [str(each.message) for each in given]


@pytest.mark.parametrize("kind", ["frame", "path"])
def test_a_warning_of_the_command_line_is_a_warning_of_python_and_in_the_result(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "rows.jsonl"
    UNSOLVED.write_ndjson(path)
    said = facts_of(f"compute {path} -o {tmp_path / 'out.jsonl'} --json")["warnings"]
    assert ODD in said[-1]
    assert any("--left-out-column" in sentence for sentence in said)

    data = path if kind == "path" else UNSOLVED
    result, given = called("compute", data)
    assert given == [*result.warnings]
    assert given == [*map(in_keywords, said)]
    assert called("advantages", data)[1] == given


@pytest.mark.parametrize(
    ("function", "options"),
    [
        ("inspect", {}),
        ("select", {"where": "mean < 1"}),
        ("compare", {"plans": ["grpo", "rloo"]}),
        ("report", {}),
        ("audit", {"column": "advantage"}),
    ],
)
def test_every_function_gives_the_warnings_that_its_result_has(function: str, options: Any) -> None:
    data = UNSOLVED.with_columns(advantage=0.0)
    result, given = called(function, data, **options)
    warnings = result["warnings"] if function == "audit" else result.warnings
    assert given == [*warnings]
    assert any("error" in sentence for sentence in given)
    assert not [sentence for sentence in given if "--" in sentence]
    assert f"{len(given)} warning" in repr(result) or "warning: " in repr(result)
    assert "error" in result._repr_html_()


def test_a_report_on_disk_and_added_columns_only_warn(tmp_path: Path) -> None:
    path, given = called("report", UNSOLVED, path=tmp_path / "report.html")
    assert path == tmp_path / "report.html"
    assert any("error" in sentence for sentence in given)
    rows = tmp_path / "rows.jsonl"
    UNSOLVED.write_ndjson(rows)
    out, given = called("add_columns", rows, frame=pl.DataFrame({"score": [1.0, NAN, 2.0, 3.0]}))
    assert out == str(tmp_path / "rows.added.jsonl")
    assert given
    assert "NaN" in given[0]


def test_each_part_of_plan_by_warns() -> None:
    data = pl.read_csv(b"prompt_id,env,reward\na,x,0\na,x,0\nb,y,0\nb,y,1\n")
    result, given = called(
        "compute", data, plan_by="env", plans={"default": {"method": "grpo"}, "x": {"method": "rloo"}}
    )
    assert given == [*result.warnings]
    assert any("no group has a gradient" in sentence for sentence in given)


def test_a_run_without_anything_odd_does_not_warn() -> None:
    data = pl.read_csv(b"prompt_id,reward\na,0\na,1\nb,1\nb,0\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert grpo_cli.compute(data).warnings == ()
        grpo_cli.inspect(data)
        grpo_cli.select(data, where="std > 0")
        grpo_cli.compare(data, ["grpo", "rloo"])


# --- at a prompt -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "options", "line"),
    [
        ("compute", {}, "<Result: 4 rows in 2 groups, grpo, 1 of 2 groups without a gradient>"),
        ("select", {"where": "std > 0"}, "<Selection: 2 of 4 rows, 1 of 2 groups>"),
        ("select", {"limit": 1, "control": True}, "<Selection: 2 of 4 rows, 1 of 2 groups, control: 2 rows>"),
        (
            "compare",
            {"plans": {"ours": "grpo", "theirs": "dr-grpo"}},
            "<Comparison: ours with theirs, 2 rows change in theirs>",
        ),
        ("audit", {"column": "adv", "method": "dr-grpo"}, r"<Audit: .*0 of 4 rows differ.*>"),
        ("report", {}, r"<Page: 4 rows in 2 groups, [\d,]+ kB of HTML>"),
    ],
)
def test_a_result_is_one_line_at_a_prompt_and_a_table_in_a_notebook(function: str, options: Any, line: str) -> None:
    data = FRAME.with_columns(adv=pl.Series(CENTRED))
    result = getattr(grpo_cli, function)(data, **options)
    assert re.fullmatch(line, repr(result)), repr(result)
    page = result._repr_html_()
    assert re.search(r"<(table|pre|iframe)\b", page)
    if function != "report":  # a page in a frame, which has its own light and dark
        assert not re.search(r"color: ?(white|black|#fff|#000)|background", page)


def test_the_figures_of_a_notebook_have_the_colour_of_its_text() -> None:
    page = grpo_cli.inspect(FRAME)._repr_html_()
    assert "<svg" in page
    assert 'fill="currentColor"' in page
    assert 'fill="white"' not in page


def test_the_records_of_an_export_are_a_line_too() -> None:
    result = grpo_cli.export(TEXTS, to="sft")
    assert re.fullmatch(r"<Selection: \d+ records \(sft\), of \d+ rows in \d+ groups.*>", repr(result))
    assert "<table" in result._repr_html_()


def test_an_audit_is_still_a_mapping() -> None:
    found = grpo_cli.audit(FRAME.with_columns(adv=pl.Series(CENTRED)), "adv")
    assert isinstance(found, dict)
    assert json.loads(json.dumps(found))["rows"] == 4
    assert {**found} == found


@pytest.mark.parametrize(
    "function", ["advantages", "compute", "inspect", "select", "export", "report", "compare", "audit"]
)
def test_options_are_in_the_signature_and_in_the_help(function: str) -> None:
    each = inspect.signature(getattr(grpo_cli, function)).parameters
    assert "group" in each
    assert "left_out_column" in each
    assert "options" not in each
    page = pydoc.plain(pydoc.render_doc(getattr(grpo_cli, function)))
    assert "\n    left_out_column:\n" in page
    assert not re.search(
        r"(?<!`)--[a-z]", page.replace("--json`", "")
    )  # a flag of the command that the result is that of


def test_a_mistake_is_the_line_that_called_and_one_of_ours() -> None:
    with pytest.raises(UsageError) as error:
        grpo_cli.advantages(FRAME, metod="rloo")  # type: ignore[call-overload]
    lines = traceback.format_exception(error.value)
    ours = [line for line in lines if "grpo_cli" in line and "File" in line]
    assert len(ours) <= 2
    assert len("".join(lines).splitlines()) <= 12


def test_old_rewards_are_named_as_on_the_command_line_and_by_their_other_name() -> None:
    ids = pl.Series("rollout_id", [1, 2, 3, 4])
    now = FRAME.with_columns(ids)
    old = frame([1.0, 0.0, 5.0, 5.0], KEYS).with_columns(ids)
    wanted = grpo_cli.inspect(now, old_rewards=old).facts["rescored"]
    assert grpo_cli.inspect(now, rescored=old).facts["rescored"] == wanted
    beside = FRAME.with_columns(old=old["reward"])
    wanted = grpo_cli.inspect(beside, old_rewards_column="old", reward="reward").facts["rescored"]
    assert grpo_cli.inspect(beside, rescored_column="old", reward="reward").facts["rescored"] == wanted
    with pytest.raises(UsageError, match="old_rewards and rescored are the same; leave one of them out"):
        grpo_cli.inspect(FRAME, rescored=old, old_rewards=old)


@pytest.mark.parametrize(
    "plans",
    [
        {"grpo": Plan.of({}), "rloo": Plan.of({"estimator.name": "rloo"})},
        ["grpo", "rloo"],
        ("grpo", "rloo"),
        {"grpo": "grpo", "rloo": {"method": "rloo"}},
        {"grpo": {"method": "grpo"}, "rloo": Plan.of({"estimator.name": "rloo"})},
    ],
)
def test_plans_are_compared_by_the_words_of_the_command_line(plans: Any) -> None:
    facts = grpo_cli.compare(FRAME, plans).facts
    assert facts["against"] == "grpo"
    (difference,) = facts["differences"]
    assert difference["name"] == "rloo"
    assert difference["changed"] == 2


def test_a_preset_is_compared_by_its_name_with_options_after_it() -> None:
    facts = grpo_cli.compare(FRAME, ["trl-grpo", "trl-grpo,scale=batch"], missing="exclude").facts
    first, second = facts["plans"]
    assert first["plan"]["divisor"]["level"] == "group"
    assert second["plan"]["divisor"]["level"] == "batch"
    assert second["plan"]["rewards"]["missing"] == "exclude"


def test_an_error_about_a_frame_does_not_speak_of_a_file(tmp_path: Path) -> None:
    odd = pl.DataFrame({"x": [1.0, 2.0]})
    with pytest.raises(DataError) as error:
        grpo_cli.advantages(odd)
    assert "FILE" not in str(error.value)
    odd.write_ndjson(tmp_path / "odd.jsonl")
    with pytest.raises(DataError, match="grpo-adv schemas FILE shows what known layouts miss"):
        grpo_cli.advantages(tmp_path / "odd.jsonl")


# --- results -----------------------------------------------------------------------------------------------


def test_rows_of_dropped_blocks_have_null_and_keep_their_place() -> None:
    cut = grpo_cli.compute(frame([0.0, 2.0, 9.0]), method="dr-grpo", group_size=2, partial="drop")
    assert cut.advantages.to_list() == [-1.0, 1.0, None]
    assert cut.status.to_list() == ["scored", "scored", None]


def test_there_is_one_line_of_facts_for_every_group_with_its_key() -> None:
    data = pl.read_csv(b"prompt_id,reward\na,0.0\na,2.0\nb,5.0\nb,5.0\nc,\nc,7.0\n")
    groups = grpo_cli.compute(data, missing="exclude", zero_variance="drop").groups
    facts = groups.select("prompt_id", "size", "scored", "mean", "min", "max", "constant", "kept")
    said = """\
prompt_id,size,scored,mean,min,max,constant,kept
a,2,2,1.0,0.0,2.0,false,true
b,2,2,5.0,5.0,5.0,true,false
c,2,1,7.0,7.0,7.0,false,true
"""
    assert facts.write_csv() == said
    assert groups["std"].to_list()[:2] == pytest.approx([2**0.5, 0.0])
    groups = grpo_cli.compute(FRAME.with_columns(run=pl.Series([1, 1, 1, 2])), group="prompt_id,run").groups
    assert groups.select("prompt_id", "run").rows() == [("a", 1), ("b", 1), ("b", 2)]


def test_nan_and_null_are_shown_apart() -> None:
    got = grpo_cli.advantages(frame([0.0, NAN, 1.0, None], [0, 0, 1, 1]), missing="propagate")
    assert got.null_count() == 0
    assert got.is_nan().all()
    assert grpo_cli.advantages(frame([0.0, 1.0, None]), missing="exclude").null_count() == 1


def test_facts_name_keywords_where_the_command_line_has_flags() -> None:
    data = pl.read_csv(b"prompt_id,reward\na,0\na,1\nb,1\nb,1\n")
    look = grpo_cli.inspect(data, group=["prompt_id"])
    said = [*look.facts["warnings"], *look.facts["verdicts"], *look.verdicts]
    assert any("zero_variance drop" in line for line in said)
    said += grpo_cli.select(frame([0.0], ["a"]), where="mean > 1").facts["warnings"]
    assert not [line for line in said if "--" in line]


FUNCTIONS = [name for name in grpo_cli.__all__ if inspect.isfunction(getattr(grpo_cli, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_says_what_it_takes_with_an_example(name: str) -> None:
    function = getattr(grpo_cli, name)
    doc = inspect.getdoc(function) or ""
    parameters, _, example = doc.partition("Example\n-------\n")
    assert f"grpo_cli.{name}(" in example
    for each in inspect.signature(function).parameters:
        assert f"\n{each}:\n" in parameters
