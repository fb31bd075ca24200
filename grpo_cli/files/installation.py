"""Where this installation came from, so that a missing extra is answered with a command that works for it."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from grpo_cli.errors import UsageError


def missing_extra(what: str, extra: str) -> UsageError:
    """The error where packages of an extra are not there."""
    return UsageError(what, install(extra))


def install(extra: str) -> str:
    """The command that adds an extra: with the installer that was used, for the Python that runs, from the same origin."""
    installer = ""
    origin = ""
    with suppress(metadata.PackageNotFoundError):  # a clone on the path of Python
        found = metadata.distribution("grpo-adv")
        installer, origin = (found.read_text(name) or "" for name in ("INSTALLER", "direct_url.json"))
    wanted = _requirement(json.loads(origin or "{}"), extra)
    if Path(sys.prefix, "uv-receipt.toml").is_file():
        return f"uv tool install --force {wanted}"
    if Path(sys.prefix, "pipx_metadata.json").is_file():
        return f"pipx install --force {wanted}"
    python = shlex.quote(sys.executable)
    if installer.strip() == "uv":
        return f"uv pip install --python {python} {wanted}"
    beside = shutil.which("pip")
    ours = beside is not None and Path(beside).parent == Path(sys.executable).parent
    return f"pip install {wanted}" if ours else f"{python} -m pip install {wanted}"


def _requirement(origin: Mapping[str, Any], extra: str) -> str:
    """What an installer is given: a folder, an archive or a repository with the extra, else the name on PyPI."""
    url = origin.get("url", "")
    if "vcs_info" in origin:
        return shlex.quote(f"grpo-adv[{extra}] @ {origin['vcs_info']['vcs']}+{url}")
    path = Path(url2pathname(urlsplit(url).path)) if url.startswith("file:") else None
    if path is None or not path.exists():
        return shlex.quote(f"grpo-adv[{extra}]")
    place = "." if path == Path.cwd() else str(path)
    return ("-e " if origin.get("dir_info", {}).get("editable") else "") + shlex.quote(f"{place}[{extra}]")
