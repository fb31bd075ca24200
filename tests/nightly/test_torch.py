"""Tensors of torch, which is no dependency: they come out as they went in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_cli.twinkle import GRPOAdvantage
from tests.support.jobs import compute, rows_of

grpo = GRPOAdvantage()
DOCUMENTED = [0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_a_tensor_keeps_its_dtype_and_device_and_needs_no_gradient(torch: Any, name: str) -> None:
    rewards = torch.tensor(DOCUMENTED, dtype=getattr(torch, name), requires_grad=True)
    advantages, rows = grpo(rewards, 4, "none", return_rows=True)
    assert advantages.dtype == rewards.dtype
    assert advantages.device == rewards.device
    assert not advantages.requires_grad
    assert advantages.tolist() == grpo(DOCUMENTED, 4, "none")
    assert rows.dtype == torch.int64
    assert rows.tolist() == [*range(8)]


def test_tensors_of_two_dimensions_of_integers_and_in_lists_are_read(torch: Any) -> None:
    flat = torch.tensor([0, 1])
    whole = grpo(flat, 2, "none")
    assert whole.dtype == torch.float32
    assert whole.tolist() == [-0.5, 0.5]
    square = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    assert grpo(square, 2, "none").tolist() == [-0.5, 0.5]
    assert grpo([*flat.float()], 2, "none") == [-0.5, 0.5]
    parameter = torch.nn.Parameter(torch.tensor([0.0, 1.0]))
    assert isinstance(grpo(parameter, 2), torch.Tensor)
    assert grpo(torch.tensor([]), 2).tolist() == []


def test_what_torch_saves_is_read_as_it_was(torch: Any, tmp_path: Path) -> None:
    grid = torch.arange(24, dtype=torch.float32).reshape(6, 4)
    columns = {
        "prompt_id": torch.arange(6) // 2, "reward": torch.tensor([0.0, 1.0] * 3), "part": grid[:, 1:3],
        "turned": grid.t().contiguous().t(), "brain": torch.full((6,), 1.5, dtype=torch.bfloat16),
        "half": torch.ones(6, dtype=torch.float16), "mask": grid > 3, "none": torch.empty(6, 0),
    }  # fmt: skip
    torch.save(columns, tmp_path / "batch.pt")
    compute(tmp_path / "batch.pt", method="rloo", output=str(tmp_path / "o.jsonl"))
    rows = rows_of(tmp_path / "o.jsonl")
    assert [row.pop("advantage") for row in rows] == [-1, 1] * 3
    assert rows == [{name: values[at].tolist() for name, values in columns.items()} for at in range(6)]
