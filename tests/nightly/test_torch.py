"""Tensors of torch, which is no dependency: they come out as they went in."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_cli.twinkle import GRPOAdvantage

grpo = GRPOAdvantage()
DOCUMENTED = [0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_a_tensor_keeps_its_dtype_and_device_and_needs_no_gradient(torch: Any, name: str) -> None:
    rewards = torch.tensor(DOCUMENTED, dtype=getattr(torch, name), requires_grad=True)
    advantages, rows = grpo(rewards, 4, "none", return_rows=True)
    assert (advantages.dtype, advantages.device) == (rewards.dtype, rewards.device)
    assert not advantages.requires_grad
    assert advantages.tolist() == grpo(DOCUMENTED, 4, "none")
    assert (rows.dtype, rows.tolist()) == (torch.int64, [*range(8)])


def test_tensors_of_two_dimensions_of_integers_and_in_lists_are_read(torch: Any) -> None:
    assert grpo(torch.tensor([[0.0, 1.0], [1.0, 1.0]]), 2, "none").tolist() == [-0.5, 0.5]
    whole = grpo(torch.tensor([0, 1]), 2, "none")
    assert (whole.dtype, whole.tolist()) == (torch.float32, [-0.5, 0.5])
    assert grpo([torch.tensor(0.0), torch.tensor(1.0)], 2, "none") == [-0.5, 0.5]
    parameter = torch.nn.Parameter(torch.tensor([0.0, 1.0]))
    assert isinstance(grpo(parameter, 2), torch.Tensor)
    assert grpo(torch.tensor([]), 2).tolist() == []
