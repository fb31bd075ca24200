"""Where a command computes: in this process, or on a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpo_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from grpo_cli.runs.ray_stages import RayOptions


def on_ray(given: Mapping[str, Any]) -> RayOptions | None:
    """The cluster that --engine ray means; None where this process computes."""
    if given.get("engine") != "ray":
        if "ray_address" in given:
            raise UsageError("--ray-address is about a cluster", "add --engine ray")
        return None
    from grpo_cli.runs.ray_stages import RayOptions

    return RayOptions(given.get("ray_address"), given.get("debug", False))
