"""Small Ray clusters for tests: on loopback only, with a token, and stopped at the end of the test."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Without importing Ray, which settles at import what it listens on, and for whom.
INSTALLED = importlib.util.find_spec("ray") is not None
STORE = 200 << 20
ALONE = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_AUTH_MODE": "token", "POLARS_MAX_THREADS": "1",
    # A machine that does not answer counts as lost after seconds.
    "RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "5",
}  # fmt: skip


@contextmanager
def raylets(count: int) -> Iterator[Any]:
    """Nodes with a processor each, all on this machine; gives the cluster, and all nodes except the first."""
    os.environ.update(ALONE)
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    import ray
    from ray.cluster_utils import Cluster

    Path("/tmp/ray").mkdir(exist_ok=True)  # noqa: S108 - Ray notes addresses there, and makes no folder for it
    scratch = tempfile.mkdtemp(prefix="ray.", dir="/tmp")
    node = {"num_cpus": 1, "object_store_memory": STORE, "node_ip_address": "127.0.0.1"}
    cluster = None
    try:
        cluster = Cluster(
            initialize_head=True, head_node_args={**node, "include_dashboard": False, "temp_dir": scratch}
        )
        more = [cluster.add_node(**node) for _ in range(count - 1)]
        ray.init(address=cluster.address, log_to_driver=False, logging_level=50, _node_ip_address="127.0.0.1")
        yield cluster, more
    finally:
        ray.shutdown()
        if cluster is not None:
            cluster.shutdown()
        shutil.rmtree(scratch, ignore_errors=True)
