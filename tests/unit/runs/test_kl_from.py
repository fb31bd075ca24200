"""--kl-from: the KL of a row is made from the log-probs of its tokens, and subtracted like that of --kl-column."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import grpo_cli
from grpo_cli.errors import UsageError
from tests.support.command import adv
from tests.support.jobs import rows_of, write

S = [[-0.5, -1.0, -0.25], [-2.0], [-0.75, -0.5], [-1.5, -0.125]]
R = [[-0.75, -0.5, -0.25], [-1.0], [-0.5, -1.5], [-1.0, -0.25]]
MASK = [[1, 1, 0], [1], [0, 1], [1, 1]]
ROWS: list[Any] = [
    {"prompt_id": at // 2, "reward": float(at % 2), "s": s, "r": r, "mask": mask}
    for at, (s, r, mask) in enumerate(zip(S, R, MASK, strict=True))
]
SUM = "--kl-estimator k1 --kl-reduce sum"
RLOO = "--kl-coef 0.5 --method rloo"
FROM = f"--kl-from s,r {RLOO}"


def kl(row: Any, estimator: str, reduce: str, *, masked: bool = False) -> float:
    """The KL of a row, in a loop."""
    tokens = zip(row["s"], row["r"], row["mask"], strict=True)
    pairs = [(s, r) for s, r, counts in tokens if counts or not masked]
    each = {
        "k1": [s - r for s, r in pairs],
        "k2": [(s - r) ** 2 / 2 for s, r in pairs],
        "k3": [math.exp(r - s) - (r - s) - 1 for s, r in pairs],
    }[estimator]
    return math.fsum(each) / (len(each) if reduce == "mean" else 1)


def rloo(kls: list[float]) -> list[float]:
    """Differences of groups of two."""
    shaped = [row["reward"] - 0.5 * value for row, value in zip(ROWS, kls, strict=True)]
    return [shaped[at] - shaped[at ^ 1] for at in range(len(ROWS))]


def advantages(path: Path, options: str) -> list[float]:
    done = adv(f"compute {path} -o - -q {FROM} {options}")
    assert not done.status, done.err
    return [row["advantage"] for row in done.rows]


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_the_kl_of_a_row_is_that_of_a_loop(estimator: str, reduce: str) -> None:
    path = write("a.jsonl", ROWS)
    found = advantages(path, f"--kl-estimator {estimator} --kl-reduce {reduce} --mask mask")
    assert found == pytest.approx(rloo([kl(row, estimator, reduce, masked=True) for row in ROWS]), abs=1e-12)


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.csv"])
def test_it_is_the_same_as_a_column_with_that_kl(name: str) -> None:
    path = write(name, [{**row, "kl": kl(row, "k3", "sum")} for row in ROWS])
    found = []
    for words in (f"{RLOO} --kl-column kl", f"{FROM} --kl-estimator k3 --kl-reduce sum"):
        done = adv(f"compute {path} -o b.jsonl --force {words}")
        assert not done.status, done.err
        found.append([row["advantage"] for row in rows_of("b.jsonl")])
    assert found[0] == pytest.approx(found[1], abs=1e-12)


def test_lists_inside_of_records_are_found_by_either_name() -> None:
    groups = [{"prompt_id": p, "rollouts": [ROWS[2 * p], ROWS[2 * p + 1]]} for p in (0, 1)]
    for at, names in enumerate(("s,r", "rollouts[].s,rollouts[].r")):
        path = write(f"{at}.jsonl", groups)
        done = adv(f"compute {path} -o - --reward rollouts[].reward --kl-from {names} {RLOO} {SUM}")
        assert not done.status, done.err
        found = [rollout["advantage"] for row in done.rows for rollout in row["rollouts"]]
        assert found == pytest.approx(rloo([kl(row, "k1", "sum") for row in ROWS]), abs=1e-12)


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_columns_of_lists_have_a_list_for_each_rollout(suffix: str) -> None:
    names = {"reward": "rewards", "s": "s", "r": "r"}
    rows = [{"prompt_id": p, **{n: [ROWS[2 * p + k][o] for k in (0, 1)] for o, n in names.items()}} for p in (0, 1)]
    path = write(f"a.{suffix}", rows)
    done = adv(f"compute {path} -o b.jsonl {FROM} {SUM}")
    assert not done.status, done.err
    found = [row["advantage"] for row in rows_of("b.jsonl")]
    assert [one for each in found for one in each] == pytest.approx(rloo([kl(row, "k1", "sum") for row in ROWS]))


def test_a_frame_and_a_stream_give_the_same() -> None:
    options: Any = {
        "kl_from": "s,r",
        "kl_estimator": "k2",
        "kl_reduce": "mean",
        "kl_coef": 0.5,
        "method": "rloo",
    }
    wanted = pytest.approx(rloo([kl(row, "k2", "mean") for row in ROWS]), abs=1e-12)
    assert grpo_cli.advantages(pl.DataFrame(ROWS), **options).to_list() == wanted
    stream = "".join(json.dumps(row) + "\n" for row in ROWS)
    words = "--kl-estimator k2 --kl-reduce mean"
    done = adv(f"compute - --stream --group prompt_id {FROM} {words}", stdin=stream)
    assert [row["advantage"] for row in done.rows] == wanted


def test_a_mask_is_for_the_plans_with_a_kl() -> None:
    frame = pl.DataFrame([{**row, "task": "ab"[row["prompt_id"]]} for row in ROWS])
    of_lists = {"kl_from": "s,r", "kl_estimator": "k3", "kl_reduce": "sum", "kl_coef": 0.5}
    plans: Any = {"a": {"method": "rloo", **of_lists}, "b": {"method": "rloo"}}
    kls = [kl(row, "k3", "sum", masked=True) if row["prompt_id"] == 0 else 0.0 for row in ROWS]
    assert grpo_cli.advantages(frame, plan_by="task", plans=plans, mask="mask").to_list() == pytest.approx(rloo(kls))
    with pytest.raises(UsageError, match="has no effect alone"):
        grpo_cli.advantages(frame, mask="mask")


def test_each_plan_may_estimate_in_its_own_way() -> None:
    path = write("a.jsonl", [{**row, "task": "ab"[row["prompt_id"]]} for row in ROWS])
    config = Path("plans.toml")
    part = 'kl-from = "s,r"\nkl-reduce = "sum"\nkl-coef = 0.5\nmethod = "rloo"\n'
    config.write_text(f'plan-by = "task"\n[plan.a]\nkl-estimator = "k1"\n{part}[plan.b]\nkl-estimator = "k3"\n{part}')
    done = adv(f"compute {path} -o - --config {config}")
    assert not done.status, done.err
    mixed = [kl(row, "k1" if row["prompt_id"] == 0 else "k3", "sum") for row in ROWS]
    assert [row["advantage"] for row in done.rows] == pytest.approx(rloo(mixed), abs=1e-12)


def test_a_preset_knows_how_its_tool_estimates() -> None:
    path = write("a.jsonl", ROWS)
    done = adv(f"compute {path} -o - --preset trl-rloo --kl-from s,r --kl-coef 0.5")
    assert [row["advantage"] for row in done.rows] == pytest.approx(rloo([kl(row, "k1", "sum") for row in ROWS]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--preset trl-grpo --kl-from s,r", "needs an estimator and a reduction; add --kl-estimator k1|k2|k3 and --kl-reduce sum|mean"),
        ("--kl-from s", "is not two columns"),
        ("--kl-from s,s", "is not two columns"),
        ("--kl-estimator k1", "--kl-estimator has no effect without --kl-from"),
        ("--kl-from s,r --kl-estimator k1 --kl-reduce sum --kl-column kl", "cannot be combined"),
        ("--mask mask", "--mask has no effect alone"),
        ("--kl-column s", "expected a number; name a column of numbers"),
        ("--kl-from s,q --kl-estimator k1 --kl-reduce sum", "no column 'q'"),
    ],
)  # fmt: skip
def test_what_is_not_said_is_asked_for(options: str, said: str) -> None:
    done = adv(f"compute {write('a.jsonl', ROWS)} -o - --kl-coef 0.5 {options}")
    assert done.status
    assert said in done.err


def test_a_row_that_is_left_out_needs_no_kl() -> None:
    broken = [{**ROWS[0], "s": [float("nan"), -1.0, -1.0], "failed": "oom"}, {**ROWS[0], "s": None, "failed": "oom"}]
    path = write("a.jsonl", [*({**row, "failed": None} for row in ROWS), *broken])
    found = advantages(path, f"{SUM} --rows 'failed is null'")
    assert found[:4] == pytest.approx(rloo([kl(row, "k1", "sum") for row in ROWS]))
    assert found[4:] == [None, None]


@pytest.mark.parametrize(
    ("changed", "options", "said"),
    [
        ({}, f"--kl-from s,r {SUM}", "--kl-from has no effect without --kl-coef"),
        (
            {"s": None},
            f"{FROM} {SUM}",
            "a.jsonl:1: sum of k1(s, r) is null; a list of log-probs or a number in it is missing",
        ),
        (
            {"s": [None, 0, 0]},
            f"{FROM} {SUM}",
            "or no token counts: --mask COL names a list of the tokens that count; --rows leaves such rows out",
        ),
        ({"s": [-1.0]}, f"{FROM} {SUM}", "a.jsonl:1: r has 3 numbers, s 1; the lists must be of the same tokens"),
        (
            {"mask": [0, 0, 0]},
            f"{FROM} --kl-estimator k1 --kl-reduce mean --mask mask",
            "is null; a list of log-probs or a number in it",
        ),
        ({"mask": [None, 1, 1]}, f"{FROM} {SUM} --mask mask", "mask is null at token 1; write 0 or 1"),
    ],
)
def test_what_a_row_lacks_is_named(changed: Any, options: str, said: str) -> None:
    path = write("a.jsonl", [{**ROWS[0], **changed}, *ROWS[1:]])
    done = adv(f"compute {path} -o - {options}")
    assert done.status
    assert said in done.err
