"""Runs with tasks, all of them in this process, compared with runs without."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from grpo_cli.cli.command import Line, read
from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.errors import InputChanged, UsageError
from grpo_cli.formats.interface import Scanned
from grpo_cli.guests.audit import run as audit
from grpo_cli.read import columns
from grpo_cli.read.tables import Binding
from grpo_cli.runs import compute_files, on_ray
from tests.support import ray_runs
from tests.support.drawn import paired, some
from tests.support.jobs import compute, job
from tests.support.ray_runs import both, both_inspected, errors, on_tasks, shards
from tests.support.ray_runs import rows as all_rows
from tests.support.schema_files import WRITERS

SUFFIXES = ["parquet", "jsonl"]
GROUPED: Any = {"group": "prompt_id", "group_within": "input"}


@pytest.fixture(autouse=True)
def _without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    ray_runs.without_ray(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shards(tmp_path / "in", all_rows())


@pytest.mark.parametrize("method", [name for name in ESTIMATORS if ray_runs.options_of(name)])
def test_every_extra_column_is_read(method: str, tmp_path: Path, folder: Path) -> None:
    both(tmp_path, folder, method=method, group="prompt_id", **ray_runs.options_of(method))


def options_of(line: str) -> dict[str, Any]:
    """What a line gives to its command, without the input."""
    found = read(line.split())
    assert isinstance(found, Line)
    del found.given["inputs"]
    return found.given


WORDS = pl.when(pl.col("reward") > 0.4).then(pl.lit("good")).otherwise(pl.lit("bad"))
COMPUTED = """\
compute in --group prompt_id --group-within input --reward reward --reward other=0.5
compute in --group prompt_id --group-within input --reward reward --rollout rollout --rollout-reward mean
compute in --group prompt_id,turns,role --group-within input --reward reward --whiten sample --batch-by turns,role
compute in --group prompt_id --group-within file --reward reward
compute in --group prompt_id --group-within role --reward reward
compute in --group prompt_id --group-within input --reward reward --group-size 4 --partial drop
compute in --group prompt_id --group-within input --reward reward --only --zero-variance drop
compute in --group prompt_id --group-within input --reward reward --facts --dtype f32
compute in --group prompt_id --group-within input --reward other --missing exclude
compute in --group prompt_id --group-within input --reward reward --kl-coef 0.1 --kl-column kl
compute in --group prompt_id --group-within input --reward words --map good=1,bad=0,fair=0.5
compute in --group prompt_id --group-within input --reward reward --zero-variance drop --per-token --token-logprobs s --teacher-logprobs t --distill 1
compute in --group prompt_id --group-within input --reward reward --per-token --token-logprobs s --teacher-logprobs t --distill 1
"""


@pytest.mark.parametrize(("line", "suffix"), paired(COMPUTED.splitlines(), SUFFIXES))
def test_options_mean_the_same(line: str, suffix: str, tmp_path: Path) -> None:
    places = pl.int_ranges(pl.col("length")).list
    s = places.eval(pl.element() * -0.5)
    t = places.eval(pl.element() * -0.1)
    frame = all_rows().with_columns(s=s, t=t, words=WORDS)
    folder = shards(Path("in"), frame, suffix=suffix)
    both(tmp_path, folder, **options_of(line))


# The type of the keys of a file, and the keys.
KEYS = """\
Int32 1 2 2 1
Int64
Int64 2 3 1 3
String 1 2 2 1
Categorical 1 9 9 9
Float64 1 2 2.5 2.5
"""


def test_shards_without_rows_and_keys_of_several_types(tmp_path: Path) -> None:
    folder = Path("in")
    folder.mkdir()
    keys = [pl.Series([[1, 2], [1, 2], [2], [2]])]
    for line in KEYS.splitlines():
        dtype, *texts = line.split()
        keys.append(pl.Series(texts, dtype=pl.String).cast(getattr(pl, dtype)))
    for at, key in enumerate(keys):
        rewards = pl.Series([0.1, 0.4, 0.9, 0.3]).head(len(key))
        pl.DataFrame({"prompt_id": key, "reward": rewards}).write_parquet(folder / f"{at}.parquet")
    for only in (False, True):
        both(tmp_path / str(only), folder, group="prompt_id", singleton="zero", only=only)


# What a column becomes, and the line.
REFUSED = """\
CAST(n AS BIGINT) % 3 AS step | --group prompt_id --reward reward
CASE WHEN n <> 333 THEN prompt_id END AS prompt_id | --group prompt_id --group-within input --reward reward
CASE WHEN n % 100 <> 77 THEN reward END AS reward | --group prompt_id --group-within input --reward reward
CASE WHEN n <> 177 THEN reward ELSE CAST('inf' AS DOUBLE) END AS reward | --group prompt_id --group-within input --reward reward
'high' AS reward | --group prompt_id --group-within input --reward reward
reward | --group prompt_id --group-within input --reward nothing --method grpo
CASE WHEN n <> 99 THEN length END AS length | --group prompt_id --group-within input --reward reward --whiten token --batch-by input --length-column length
CAST(1 AS DOUBLE) AS advantage | --group prompt_id --group-within input --reward reward
CASE WHEN reward > 0.4 THEN 'good' ELSE 'bad' END AS reward | --group prompt_id --group-within input --reward reward --map good=1
"""


@pytest.mark.parametrize(("case", "suffix"), paired(REFUSED.splitlines(), SUFFIXES))
def test_what_one_process_refuses_is_refused(case: str, suffix: str, tmp_path: Path) -> None:
    change, flags = case.split(" | ")
    frame = all_rows().with_row_index("n").with_columns(pl.sql_expr(change)).drop("n")
    folder = shards(Path("in"), frame, suffix=suffix)
    errors(tmp_path, folder, **{"group_within": None, **options_of(f"compute in {flags}")})


def test_groups_of_several_prompts_are_refused(tmp_path: Path) -> None:
    prompts = pl.format("a question of number {}", pl.int_range(pl.len()))
    folder = shards(Path("in"), all_rows().with_columns(prompt=prompts))
    error = errors(tmp_path, folder, reward=["reward"])
    assert str(error).startswith("groups of prompt_id hold several prompts: prompt differs inside")
    facts = both(Path("named"), folder, group="prompt_id")
    assert facts["warnings"][0].startswith("groups of prompt_id hold several prompts: prompt differs inside")


def test_a_text_that_an_id_contradicts_is_no_key(tmp_path: Path) -> None:
    frame = all_rows().rename({"prompt_id": "prompt"}).with_columns(id=pl.int_range(pl.len()) // 2)
    folder = shards(Path("in"), frame)
    error = errors(tmp_path, folder)
    assert str(error) == "several columns could be the group key: prompt, id; choose with --group NAME"


@pytest.mark.parametrize("name", some(WRITERS, 4))
def test_the_layouts_of_known_tools_are_read_as_by_one_process(name: str, tmp_path: Path) -> None:
    Path("in").mkdir()
    written = WRITERS[name](Path("in"))
    flags = {"column": "mine", "replace": True, "singleton": "zero", **written.flags}
    both(tmp_path, written.path, group_within=None, **flags)


def with_log_probs(frame: pl.DataFrame) -> pl.DataFrame:
    """Three tokens a row."""
    s = [[-(at % 7) / 7, -1.0, -(at % 5) / 5] for at in range(len(frame))]
    r = [[-(at % 7) / 7, -1.0, -(at % 3) / 5] for at in range(len(frame))]
    return frame.with_columns(s=pl.Series(s), r=pl.Series(r))


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("rows", [20, 100_000])
def test_lists_of_log_probs_are_reduced_where_they_are_read(suffix: str, rows: int, tmp_path: Path) -> None:
    folder = shards(Path("in"), with_log_probs(all_rows()), suffix=suffix)
    of_lists = {"kl_from": "s,r", "kl_estimator": "k3", "kl_reduce": "sum", "kl_coef": 0.1}
    both(tmp_path, folder, **GROUPED, reward=["reward"], rows=rows, **of_lists)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_an_inspection_of_log_probs_has_the_facts_of_one_process(suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shards(Path("in"), with_log_probs(all_rows()), suffix=suffix)
    lists: Any = {"token_logprobs": "s", "old_token_logprobs": "r"}
    tasks = ray_runs.without_ray(monkeypatch)
    both_inspected(folder, **GROUPED, reward=["reward"])
    narrow = len(tasks)
    facts = both_inspected(folder, **GROUPED, reward=["reward"], **lists)
    assert facts["off_policy"]["all"]["tokens"] == 1800
    assert len(tasks) - narrow > narrow > 0  # the lists are read by tasks, too


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_a_large_file_of_lines_is_read_in_sections(
    newline: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections = list[int]()
    joined = columns.ReadColumns.joined

    def counted(work: Any, table: Any, parts: Any) -> Scanned:
        sections.append(len(parts))
        return joined(work, table, parts)

    monkeypatch.setattr(columns.ReadColumns, "joined", counted)
    lines = all_rows(1000).write_ndjson().encode().splitlines()
    lines[10:10] = [b"", b"  "]
    folder = Path("in")
    folder.mkdir()
    large = folder / "large.jsonl"
    large.write_bytes(b"\xef\xbb\xbf" + newline.join(lines))
    (folder / "small.jsonl").write_bytes(b'{"prompt_id": "p1", "reward": 3}\n')
    options: Any = {**GROUPED, "rows": 20}  # sections of 5 kB
    facts = both(tmp_path, folder, **options)
    assert facts["rows"] == 1001
    assert len(sections) == 1
    assert sections[0] > 30
    late = [line.replace(b'"reward":', b'"other_reward":') for line in lines]
    large.write_bytes(newline.join(late[:500] + lines[500:]))
    error = errors(Path("late"), folder, reward=["reward"], **options)
    assert "large.jsonl:1: reward is null" in str(error)
    large.write_bytes(newline.join(late))
    error = errors(Path("nowhere"), folder, reward=["reward"], **options)
    assert "large.jsonl: no column 'reward'" in str(error)
    large.write_bytes(newline.join([*lines[:700], b'{"prompt_id": ', *lines[700:]]))
    error = errors(Path("broken"), folder, reward=["reward"], **options)
    assert ":701: " in str(error)


def test_keys_of_several_types_in_the_sections_of_a_file_stay_apart(tmp_path: Path) -> None:
    path = Path("rows.jsonl")
    with path.open("w") as file:
        for key in ("1", '"1"', "2", "[1, 2]", "2.5"):
            for reward in (0, 1, 2):
                file.write(f'{{"prompt_id": {key}, "reward": {reward}, "more": "{"x" * 100}"}}\n' * 17)
    assert both(tmp_path, path, rows=20, group="prompt_id")["groups"] == 5


def test_a_step_that_only_late_lines_have_tells_groups_apart(tmp_path: Path) -> None:
    frame = all_rows(9000, 1000)
    folder = shards(Path("in"), frame, suffix="jsonl")
    path = folder / "shard_2.jsonl"
    lines = path.read_text().splitlines()
    lines[-3:] = [line.replace("{", '{"step":4,', 1) for line in lines[-3:]]
    path.write_text("\n".join(lines))
    error = errors(tmp_path, folder, group="prompt_id", group_within=None)
    assert "values of 'step'" in str(error)


def test_groups_that_look_like_two_draws_are_named_beside_records_without_rollouts(tmp_path: Path) -> None:
    rollouts = '"rollouts": [{"r": 0}, {"r": 1}, {"r": 0}, {"r": 1}]'
    draw = "".join(f'{{"id": {at}, {rollouts}}}\n' for at in range(30))
    path = Path("in.jsonl")
    path.write_text(draw + draw + '{"id": 99, "rollouts": []}\n')
    warnings = " ".join(both(tmp_path, path, group="id", reward=["rollouts[].r"])["warnings"])
    assert "come back" in warnings
    assert "no rollouts" in warnings


def test_outputs_in_place_and_beside(folder: Path) -> None:
    expected = Path("expected")
    compute_files.run(job(folder, **GROUPED, output=f"{expected}/"))
    with on_tasks() as workers:
        compute_files.run(job(folder, **GROUPED), workers=workers)
        for path in expected.iterdir():
            beside = folder / f"{path.stem}.advantages.parquet"
            assert beside.read_bytes() == path.read_bytes()
            beside.unlink()
        compute_files.run(job(folder, **GROUPED, in_place=True), workers=workers)
    assert len([*folder.iterdir()]) == 5
    for path in expected.iterdir():
        assert pl.read_parquet(folder / path.name).equals(pl.read_parquet(path))


@pytest.mark.parametrize("stage", ["reading", "computing", "writing"])
def test_a_file_that_changes_meanwhile_is_refused(stage: str, folder: Path) -> None:
    def change(name: str, done: int = 0, total: int = 0) -> None:
        if name == stage and (done < total or name == "computing"):
            path = folder / "shard_4.parquet"
            path.write_bytes(path.read_bytes())

    words = job(folder, **GROUPED, output="out/")
    changed = r"shard_4\.parquet: the file changed"
    with on_tasks(rows=1) as workers, pytest.raises(InputChanged, match=changed):
        compute_files.run(words, change, workers)
    assert not Path("out/shard_4.parquet").exists()


@pytest.mark.parametrize("stage", ["computing", "writing"])
def test_an_output_that_another_one_makes_meanwhile_is_never_overwritten(stage: str, folder: Path) -> None:
    Path("out").mkdir()

    def another(name: str, *_: int) -> None:
        if name == stage:
            Path("out/shard_4.parquet").write_text("mine")

    with on_tasks(rows=1) as workers:
        words = job(folder, **GROUPED, output="out/")
        with pytest.raises(UsageError, match=r"shard_4\.parquet:? exists"):
            compute_files.run(words, another, workers)
        assert Path("out/shard_4.parquet").read_text() == "mine"
        words = job(folder, **GROUPED, output="out/", force=True)
        compute_files.run(words, workers=workers)
    assert Path("out/shard_4.parquet").read_bytes()[:4] == b"PAR1"


def test_blocks_go_on_from_shard_to_shard_of_one_dataset(tmp_path: Path, folder: Path) -> None:
    for at, path in enumerate(sorted(folder.iterdir())):
        path.rename(folder / f"data-{at:05d}-of-00005.parquet")
    both(tmp_path, folder, group_size=4, group_within=None)


def test_rows_that_are_written_twice(tmp_path: Path) -> None:
    all_rows(60, 12).write_parquet("rows.parquet")
    both(tmp_path, Path("rows.parquet"), group="prompt_id", zero_variance="drop", duplicate=True, seed=3)


def test_texts_travel_once_each() -> None:
    texts = [f"a question that is long enough to matter, number {at // 8}" for at in range(8000)]
    keys = pl.Series("prompt", texts)
    lengths = keys.str.len_bytes().cast(pl.Float64).alias("reward")
    sent = pickle.dumps(on_ray.packed(Scanned(pl.DataFrame([keys, lengths]))))
    assert len(sent) < 8000 * (8 + 4) + 1000 * 80
    assert on_ray.unpacked(pickle.loads(sent)).frame["prompt"].equals(keys)  # noqa: S301
    different = pl.DataFrame({"prompt": [None, *map(str, range(99))]})
    assert on_ray.unpacked(on_ray.packed(Scanned(different))).frame.equals(different)


@pytest.mark.parametrize(("rows", "most", "tasks"), [(200, on_ray.MOST, range(2, 5)), (1, 6, range(1, 7))])
def test_files_share_a_task_where_they_are_small_or_too_many(rows: int, most: int, tasks: range) -> None:
    folder = shards(Path("in"), all_rows(600), files=30)
    totals = list[int]()

    def phase(name: str, _: int = 0, total: int = 0) -> None:
        totals.extend([total] if name == "reading" else [])

    with on_tasks(rows=rows) as workers:
        workers.most = most
        words = job(folder, **GROUPED, explain=True)
        compute_files.run(words, phase, workers)
    assert totals[-1] in tasks


# --- inspect and audit -----------------------------------------------------------------------------------------


INSPECTED = """\
inspect in --group prompt_id --group-within input --reward reward
inspect in --group prompt_id --group-within input --reward reward --by file
inspect in --group prompt_id --group-within input --reward reward --reward other --length-column length
inspect in --group prompt_id --group-within input --reward logprob --reward kl --combine normalize
inspect in --group prompt_id --group-within input --reward reward --rollout rollout --rollout-reward last
inspect in --group-size 3 --partial keep --reward reward
inspect in --group prompt_id --group-within input --reward reward --duplicates --text-column text
"""


@pytest.mark.parametrize(("line", "suffix"), paired(INSPECTED.splitlines(), SUFFIXES))
def test_an_inspection_has_the_facts_of_one_process(line: str, suffix: str) -> None:
    frame = all_rows().with_columns(text=pl.format("response {}", pl.int_range(pl.len()) % 7))
    folder = shards(Path("in"), frame, suffix=suffix)
    facts = both_inspected(folder, **{"group_within": None, **options_of(line)})
    assert facts["listed"]["most"]


def test_an_audit_has_the_facts_of_one_process() -> None:
    folder = shards(Path("in"), all_rows().drop("length"))
    compute(folder, **GROUPED, scale="batch", batch_by="input", output="out/")
    binding = Binding(group=("prompt_id",), rewards=("reward",))
    refused = ray_runs.both_audited(audit.Job(inputs=[str(folder)], binding=binding))
    assert "error" in refused
    found = ray_runs.both_audited(audit.Job(inputs=["out"], binding=binding))
    assert found["match"]["mismatched_rows"] == 0
