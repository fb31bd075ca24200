"""A run in partitions, all of whose tasks are done by this process, against a run of one process."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.plan import Plan
from grpo_cli.errors import InputChanged, UsageError
from grpo_cli.runs import compute_files, compute_ray, ray_stages
from grpo_cli.runs.ray_stages import RayOptions
from tests.support import partitions
from tests.support.jobs import job
from tests.support.schema_files import WRITERS

if TYPE_CHECKING:
    from pathlib import Path

ORDER_FREE = [name for name, one in ESTIMATORS.items() if one.order_free]
BINARY = {"bnpo", "vr-cond", "maxrl", "spo"}


@pytest.fixture(autouse=True)
def _without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions.without_ray(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return partitions.shards(tmp_path / "in", partitions.rows())


@pytest.mark.parametrize("method", ORDER_FREE)
def test_every_method_gives_the_same_bytes_at_group_scope(method: str, tmp_path: Path) -> None:
    folder = partitions.shards(tmp_path / "in", partitions.rows(binary=method in BINARY))
    batch = Plan.of({"estimator.name": method}).uses_batch
    more: dict[str, Any] = {"batch_by": "input"} if batch else {}
    partitions.both(
        tmp_path, folder, exact=not batch, method=method, group="prompt_id", **partitions.options_of(method), **more
    )


@pytest.mark.parametrize("method", [name for name in ORDER_FREE if "batch" in ESTIMATORS[name].scales])
@pytest.mark.parametrize("batch", ["input", "file"])
def test_every_method_divided_by_a_batch_is_the_same_to_rounding(method: str, batch: str, tmp_path: Path) -> None:
    frame = partitions.rows(binary=method in BINARY)
    folder = partitions.shards(tmp_path / "in", frame.sort("prompt_id") if batch == "file" else frame)
    within = {"group_within": "file"} if batch == "file" else {}
    options: dict[str, Any] = {"method": method, "group": "prompt_id", "scale": "batch", "batch_by": batch, **within}
    partitions.both(tmp_path, folder, exact=False, **options, **partitions.options_of(method))


@pytest.mark.parametrize(
    "options",
    [
        {"whiten": "sample", "batch_by": "input"},
        {"whiten": "token", "batch_by": "input", "length_column": "length"},
        {"scale": "batch", "whiten": "sample", "batch_by": "input"},
        {"whiten": "sample", "batch_by": "turns,role", "group": "prompt_id,turns,role"},
    ],
    ids=str,
)
def test_batches_are_normalised_as_by_one_process(options: dict[str, Any], tmp_path: Path, folder: Path) -> None:
    partitions.both(tmp_path, folder, exact=False, **{"group": "prompt_id", "reward": ["reward"], **options})


@pytest.mark.parametrize(
    "options",
    [
        {"reward": ["reward", "other=0.5"]},
        {"reward": ["reward", "other"], "combine": "normalize"},
        {"rollout": "rollout"},
        {"rollout": "rollout", "rollout_reward": "mean"},
        {"group_within": "file"},
        {"group_within": "role"},
        {"group_size": 4, "partial": "drop"},
        {"group_size": 4, "partial": "keep"},
        {"zero_variance": "drop"},
        {"zero_variance": "null", "min_group_size": 6},
        {"singleton": "drop"},
        {"only": True},
        {"only": True, "zero_variance": "drop"},
        {"facts": True, "dtype": "f32"},
        {"preset": "trl-grpo"},
        {"reward": ["other"], "missing": "exclude"},
        {"reward": ["other"], "missing": "zero"},
        {"kl_coef": 0.1, "kl_column": "kl"},
        {"expr": "(reward - mean) / (std + epsilon)", "method": "expression"},
    ],
    ids=str,
)
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_options_mean_the_same(options: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    folder = partitions.shards(tmp_path / "in", partitions.rows(), suffix=suffix)
    if options.get("method") == "expression":
        with pytest.raises(UsageError, match="depends on the order"):
            partitions.both(tmp_path, folder, **{"group": "prompt_id", **options})
        return
    partitions.both(tmp_path, folder, **{"group": "prompt_id", "reward": ["reward"], **options})


def test_blocks_of_rows_without_a_key(tmp_path: Path, folder: Path) -> None:
    partitions.both(tmp_path, folder, group_size=3, partial="keep", group_within=None)


@pytest.mark.parametrize("keys", ["one", "all-different"])
def test_one_key_for_all_rows_and_one_for_each(keys: str, tmp_path: Path) -> None:
    frame = partitions.rows(200)
    key = pl.lit("same") if keys == "one" else pl.int_range(pl.len())
    folder = partitions.shards(tmp_path / "in", frame.with_columns(prompt_id=key))
    partitions.both(tmp_path, folder, group="prompt_id", singleton=None if keys == "one" else "zero")


def test_shards_without_rows_and_keys_of_several_types(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    keys = (
        pl.Series([1, 2, 2, 1], dtype=pl.Int32),
        pl.Series([], dtype=pl.Int64),
        pl.Series([2, 3, 1, 3], dtype=pl.Int64),
        pl.Series(["1", "2", "2", "1"]),
        pl.Series(["1", "9", "9", "9"], dtype=pl.Categorical),
        pl.Series([1.0, 2.0, 2.5, 2.5]),
        pl.Series([[1, 2], [1, 2], [2], [2]]),
    )
    for at, key in enumerate(keys):
        rewards = pl.Series([0.1, 0.4, 0.9, 0.3][: len(key)], dtype=pl.Float64)
        pl.DataFrame({"prompt_id": key, "reward": rewards}).write_parquet(folder / f"{at}.parquet")
    several: list[dict[str, Any]] = [{}, {"only": True}]
    for more in several:
        partitions.both(tmp_path / str(bool(more)), folder, group="prompt_id", singleton="zero", **more)


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ({}, {"group_within": None}),
        ({"step": pl.int_range(pl.len()) % 3}, {"group_within": None}),
        ({"step": pl.int_range(pl.len()) % 3}, {"whiten": "sample"}),
        ({"step": pl.int_range(pl.len()) % 3}, {"whiten": "sample", "batch_by": "step"}),
        ({}, {"whiten": "sample"}),
        ({"prompt_id": pl.when(pl.int_range(pl.len()) != 333).then("prompt_id")}, {}),
        ({"prompt_id": pl.int_range(pl.len())}, {}),
        ({"reward": pl.when(pl.int_range(pl.len()) % 100 != 77).then("reward")}, {}),
        ({"reward": pl.when(pl.int_range(pl.len()) != 177).then("reward").otherwise(float("inf"))}, {}),
        ({"reward": pl.when(pl.int_range(pl.len()) != 177).then("reward").otherwise(1e120)}, {}),
        ({"reward": pl.lit("high")}, {}),
        ({}, {"expect_size": 9}),
        ({}, {"group_size": 4}),
        ({}, {"group_size": 400, "partial": "drop"}),
        ({}, {"singleton": "error", "group": "prompt_id,rollout"}),
        ({}, {"method": "grpo", "reward": ["nothing"]}),
        ({}, {"group": "nothing"}),
        ({"length": pl.when(pl.int_range(pl.len()) != 99).then("length")}, {"whiten": "token", "batch_by": "input", "length_column": "length"}),
        ({"advantage": pl.lit(1.0)}, {}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else value,
)  # fmt: skip
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_what_one_process_refuses_is_refused(
    change: dict[str, pl.Expr], options: dict[str, Any], suffix: str, tmp_path: Path
) -> None:
    folder = partitions.shards(tmp_path / "in", partitions.rows().with_columns(**change), suffix=suffix)
    local, parted = partitions.errors(tmp_path, folder, **{"group": "prompt_id", "reward": ["reward"], **options})
    assert str(local) == str(parted)
    assert type(local).__mro__[-6:] == type(parted).__mro__[-6:]
    assert not (tmp_path / "parted").exists() or not list((tmp_path / "parted").iterdir())


def test_groups_of_several_prompts_are_refused(tmp_path: Path) -> None:
    prompts = pl.format("a question of number {}", pl.int_range(pl.len()))
    folder = partitions.shards(tmp_path / "in", partitions.rows().with_columns(prompt=prompts))
    for error in partitions.errors(tmp_path, folder, reward=["reward"]):
        assert str(error).startswith("groups of prompt_id hold several prompts: prompt differs inside")
    facts = partitions.both(tmp_path / "named", folder, group="prompt_id", warnings_differ=True)
    assert facts["warnings"][0].startswith("groups of prompt_id hold several prompts: prompt differs inside")


def test_a_text_that_an_id_contradicts_is_no_key(tmp_path: Path) -> None:
    frame = partitions.rows().rename({"prompt_id": "prompt"}).with_columns(id=pl.int_range(pl.len()) // 2)
    folder = partitions.shards(tmp_path / "in", frame)
    local, parted = partitions.errors(tmp_path, folder)
    assert str(local) == str(parted) == "several columns could be the group key: prompt, id; choose with --group NAME"


@pytest.mark.parametrize("name", WRITERS)
def test_the_layouts_of_known_tools_are_read_as_by_one_process(name: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    written = WRITERS[name](tmp_path / "in")
    flags = {"column": "mine", "replace": True, "singleton": "zero", **written.flags}
    partitions.both(tmp_path, written.path, partitions=3, group_within=None, **flags)


@pytest.mark.parametrize(("draws", "cut"), [(2, True), (1, False), (0, False)])
def test_groups_are_cut_where_the_trainers_advantages_say_so_in_all_partitions(
    draws: int, *, cut: bool, tmp_path: Path
) -> None:
    """Twelve prompts of four rollouts, half of them drawn twice; with 0 one of the logged advantages denies it."""
    rows, number = [], 0
    for block in range(12 if draws == 1 else 18):
        for reward, advantage in ((1.0, 0.5), (0.0, -0.5), (1.0, 0.5), (0.0, -0.5)):
            number += 1
            wrong = 0.25 if draws == 0 and number == 30 else 0.0
            rows.append(("step", f"<|user|>{block % 12}", f"w{number}", reward, advantage + wrong))
    frame = pl.DataFrame(rows, schema=["step", "prompt", "completion", "accuracy_reward", "advantage"], orient="row")
    folder = tmp_path / "in" / "completions"
    folder.mkdir(parents=True)
    frame.with_columns(step=pl.lit(7)).write_parquet(folder / "completions_00007.parquet")
    facts = partitions.both(tmp_path, folder / "completions_00007.parquet", group_within=None, column="mine")
    assert any("cut into blocks of 4" in note for note in facts["notes"]) == cut


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ([4] * 9 + [8, 4, 12], "group sizes are multiples of 4 (up to 12): two draws of one prompt in one group?"),
        ([4] * 9 + [8, 4, 3], "group sizes are multiples of 4 (up to 8): two draws of one prompt in one group?"),
        ([4] * 10 + [-4, -4], "2 group keys come back in separate blocks of 4 rows: drawn twice, or ids that restart?"),
        ([4] * 10 + [-4, -3], "a group key comes back in separate blocks of 4 rows: drawn twice, or ids that restart?"),
        ([4] * 10 + [-4, 8], "a group key comes back in separate blocks of multiples of 4 rows: drawn twice, or ids that restart?"),
        ([4] * 9 + [6, 5], ""),
        ([96], "all 96 rows are one group: is prompt_id the same everywhere?"),
    ],
    ids=str,
)  # fmt: skip
def test_groups_that_look_like_several_draws_are_warned_of(sizes: list[int], said: str, tmp_path: Path) -> None:
    """A negative size is that of a block with a key that was there before."""
    keys = [at if size > 0 else at - 9 for at, size in enumerate(sizes) for _ in range(abs(size))]
    frame = pl.DataFrame({"prompt_id": keys, "reward": [at % 3 / 2 for at in range(len(keys))]})
    folder = partitions.shards(tmp_path / "in", frame)
    facts = partitions.both(tmp_path, folder, group="prompt_id")
    assert [one.startswith(said) for one in facts["warnings"]] == [True] * bool(said)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_a_large_file_of_lines_is_read_in_sections(
    newline: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_stages, "ROWS", 40)  # sections of 5 kB
    lines = partitions.rows(1000).write_ndjson().encode().splitlines()
    lines[10:10] = [b"", b"  "]
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "large.jsonl").write_bytes(b"\xef\xbb\xbf" + newline.join(lines))
    (folder / "small.jsonl").write_bytes(b'{"prompt_id": "p1", "reward": 3}\n')
    facts = partitions.both(tmp_path, folder, group="prompt_id", partitions=3)
    assert facts["rows"] == 1001
    late = [line.replace(b'"reward":', b'"other_reward":') for line in lines]
    (folder / "large.jsonl").write_bytes(newline.join(late[:500] + lines[500:]))
    local, parted = partitions.errors(tmp_path / "late", folder, group="prompt_id", reward=["reward"])
    assert str(local) == str(parted)
    (folder / "large.jsonl").write_bytes(newline.join([*lines[:700], b'{"prompt_id": ', *lines[700:]]))
    local, parted = partitions.errors(tmp_path / "broken", folder, group="prompt_id", reward=["reward"])
    assert str(local) == str(parted)
    assert ":701: " in str(parted)


def test_a_step_that_only_late_lines_have_tells_groups_apart(tmp_path: Path) -> None:
    frame = partitions.rows(9000, 1000)
    folder = partitions.shards(tmp_path / "in", frame, suffix="jsonl")
    path = folder / "shard_2.jsonl"
    lines = path.read_text().splitlines()
    lines[-3:] = [line.replace("{", '{"step":4,', 1) for line in lines[-3:]]
    path.write_text("\n".join(lines))
    local, parted = partitions.errors(tmp_path, folder, group="prompt_id", group_within=None)
    assert str(local) == str(parted)
    assert "values of 'step'" in str(parted)


def test_rows_that_are_dropped_from_blocks_count_no_samples(tmp_path: Path) -> None:
    frame = partitions.rows().with_columns(sample_id=pl.int_range(pl.len()) % 7)
    folder = partitions.shards(tmp_path / "in", frame)
    options: dict[str, Any] = {"group": "prompt_id", "group_size": 3, "partial": "drop"}
    partitions.both(tmp_path, folder, warnings_differ=True, **options)  # one process counts those that go, too


def test_groups_that_look_like_two_draws_are_named_beside_records_without_rollouts(tmp_path: Path) -> None:
    draws = [{"id": at % 30, "rollouts": [{"r": k % 2} for k in range(4)]} for at in range(60)]
    lines = [*draws, {"id": 99, "rollouts": []}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    facts = partitions.both(tmp_path, tmp_path / "in.jsonl", group="id", reward=["rollouts[].r"])
    assert ["come back" in " ".join(facts["warnings"]), "no rollouts" in " ".join(facts["warnings"])] == [True, True]


def test_quartiles_and_bins_of_many_rewards_are_exact(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    frame = partitions.rows(3000).with_columns(reward=pl.Series(draw.normal(size=3000) * 10.0 ** draw.integers(-9, 9)))
    folder = partitions.shards(tmp_path / "in", frame)
    facts = partitions.both(tmp_path, folder, group="prompt_id")
    assert facts["reward"]["quartiles"] == pytest.approx(np.quantile(frame["reward"], [0.25, 0.5, 0.75]), rel=1e-15)
    assert sum(facts["reward"]["histogram"]["counts"]) == 3000


def test_a_run_goes_on_after_an_interruption(tmp_path: Path, folder: Path) -> None:
    options: dict[str, Any] = {"group": "prompt_id", "group_within": "input", "resume": True}
    first = compute_ray.run(job(folder, output=f"{tmp_path}/out/", **options), ray=RayOptions(partitions=3))
    assert first["kept_outputs"] == 0
    (tmp_path / "out" / "shard_3.parquet").unlink()
    again = compute_ray.run(job(folder, output=f"{tmp_path}/out/", **options), ray=RayOptions(partitions=3))
    assert again["kept_outputs"] == 4
    one_process = compute_files.run(job(folder, output=f"{tmp_path}/out/", **options)).facts
    assert one_process["kept_outputs"] == 5


def test_outputs_in_place_and_beside(tmp_path: Path, folder: Path) -> None:
    expected = tmp_path / "expected"
    compute_files.run(job(folder, group="prompt_id", group_within="input", output=f"{expected}/"))
    compute_ray.run(job(folder, group="prompt_id", group_within="input"), ray=RayOptions(partitions=3))
    beside = sorted(folder.glob("*.advantages.parquet"))
    assert [path.read_bytes() for path in beside] == [path.read_bytes() for path in sorted(expected.iterdir())]
    for path in beside:
        path.unlink()
    compute_ray.run(job(folder, group="prompt_id", group_within="input", in_place=True), ray=RayOptions(partitions=3))
    read = [pl.read_parquet(path) for path in sorted(folder.iterdir())]
    assert all(one.equals(pl.read_parquet(path)) for one, path in zip(read, sorted(expected.iterdir()), strict=True))


@pytest.mark.parametrize("stage", ["computing", "writing"])
def test_a_file_that_changes_meanwhile_is_refused(
    stage: str, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_stages, "ROWS", 100)  # a task for each file

    def change(name: str, done: int = 0, total: int = 0) -> None:
        if name == stage and 0 < done < total:
            path = folder / "shard_4.parquet"
            path.write_bytes(path.read_bytes())

    with pytest.raises(InputChanged, match=r"shard_4\.parquet: the file changed"):
        compute_ray.run(
            job(folder, group="prompt_id", group_within="input", output=f"{tmp_path}/out/"),
            change,
            ray=RayOptions(partitions=3),
        )
    assert not (tmp_path / "out" / "shard_4.parquet").exists()


@pytest.mark.parametrize("stage", ["computing", "writing"])
def test_an_output_that_another_one_makes_meanwhile_is_never_overwritten(
    stage: str, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_stages, "ROWS", 100)  # a task for each file
    (tmp_path / "out").mkdir()

    def another(name: str, done: int = 0, total: int = 0) -> None:
        if name == stage and 0 < done < total:
            (tmp_path / "out" / "shard_4.parquet").write_text("mine")

    words = job(folder, group="prompt_id", group_within="input", output=f"{tmp_path}/out/")
    with pytest.raises(UsageError, match=r"shard_4\.parquet:? exists"):
        compute_ray.run(words, another, ray=RayOptions(partitions=3))
    assert (tmp_path / "out" / "shard_4.parquet").read_text() == "mine"
    assert len(list((tmp_path / "out").iterdir())) == (1 if stage == "computing" else 5)
    words = job(folder, group="prompt_id", group_within="input", output=f"{tmp_path}/out/", force=True)
    compute_ray.run(words, another, ray=RayOptions(partitions=3))
    assert (tmp_path / "out" / "shard_4.parquet").read_bytes()[:4] == b"PAR1"


def test_blocks_go_on_from_shard_to_shard_of_one_dataset(tmp_path: Path, folder: Path) -> None:
    for at, path in enumerate(sorted(folder.iterdir())):
        path.rename(folder / f"data-{at:05d}-of-00005.parquet")
    partitions.both(tmp_path, folder, group_size=4, group_within=None)


def test_rewards_that_are_words_count_as_they_are_said_to(tmp_path: Path) -> None:
    words = pl.when(pl.col("reward") > 0.4).then(pl.lit("good")).otherwise(pl.lit("bad"))
    folder = partitions.shards(tmp_path / "in", partitions.rows().with_columns(reward=words))
    partitions.both(tmp_path / "said", folder, group="prompt_id", reward=["reward"], map="good=1,bad=0,fair=0.5")
    local, parted = partitions.errors(tmp_path / "not", folder, group="prompt_id", reward=["reward"], map="good=1")
    assert str(local) == str(parted)


@pytest.mark.parametrize(("processors", "most"), [(2, 64), (100, 400), (10_000, 1000)])
def test_rows_grow_faster_than_the_tasks_that_read_them(processors: int, most: int) -> None:
    def tasks(rows: int) -> int:
        files = [SimpleNamespace(format=SimpleNamespace(sections=lambda *_: []), source=None)] * (rows // 50_000)
        return len(ray_stages.shards_of(files, [50_000] * len(files), processors))  # type: ignore[arg-type]

    assert tasks(10_000_000) == 40
    assert most / 2 < tasks(500_000_000) <= most
