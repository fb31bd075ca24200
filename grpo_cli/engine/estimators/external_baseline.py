"""Baselines that are columns of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from grpo_cli.engine.estimators.terms import Terms


def given(t: Terms) -> pl.Expr:
    """Reward minus the reward of the greedy answer (or any other baseline in the file).

        A = r - baseline

    A row that does as well as the greedy answer gets 0; without a baseline a row has no advantage.
    Source: ReMax arXiv:2310.10505.
    """
    return t.r - t.role("baseline")


def reference_mean(t: Terms) -> pl.Expr:
    """Reward minus the mean of rewards that a reference policy got on the same prompt.

        A = r - mean(references)

    With one reference it is remax; an empty list of references gives no advantage.
    Source: PVPO arXiv:2508.21104.
    """
    return t.r - t.role("references").list.mean()


def reference_value(t: Terms, *, beta: float) -> pl.Expr:
    """Reward minus the optimal value under a KL penalty, estimated from reference rewards.

        A = r - V,  V = beta ln mean exp(references/beta);  beta = 0: their mean

    A large beta gives the mean, a small one the best reference. Source: A*-PO arXiv:2505.20686.
    """
    if beta == 0:
        return reference_mean(t)
    import polars as pl

    references = t.role("references")
    top = t.let(references.list.max() if beta > 0 else references.list.min())
    excess = references.list.eval(pl.element() / beta)
    tilted = (excess - top / beta).list.eval(pl.element().exp()).list.mean()
    return t.r - top - beta * tilted.log()
