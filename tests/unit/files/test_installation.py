"""The command that adds an extra, for every way to install this package."""

from __future__ import annotations

import json
import shutil
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_cli.files import installation

PIP = str(Path(sys.executable).with_name("pip"))


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pip of this Python is first on the path, and the prefix of Python has no files of pipx or uv."""
    monkeypatch.setattr(shutil, "which", {"pip": PIP}.get)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    (tmp_path / "prefix").mkdir()


def installed(monkeypatch: pytest.MonkeyPatch, origin: Any, installer: str = "pip\n") -> None:
    files = {"INSTALLER": installer, "direct_url.json": None if origin is None else json.dumps(origin)}
    monkeypatch.setattr(metadata, "distribution", lambda _: SimpleNamespace(read_text=files.get))


@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        (None, "'grpo-adv[ray]'"),  # from an index
        ({"url": "file:///gone/away", "dir_info": {}}, "'grpo-adv[ray]'"),  # from a clone that is gone
        ({"url": "https://host/a.git", "vcs_info": {"vcs": "git", "commit_id": "1"}}, "'grpo-adv[ray] @ git+https://host/a.git'"),
    ],
)  # fmt: skip
def test_an_extra_comes_from_where_the_package_came_from(
    origin: Any, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, origin)
    assert installation.install("ray") == f"pip install {wanted}"


def test_from_a_clone_it_is_the_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clone = tmp_path / "my clone"
    clone.mkdir()
    installed(monkeypatch, {"url": clone.as_uri(), "dir_info": {}})
    assert installation.install("report") == f"pip install '{clone}[report]'"
    monkeypatch.chdir(clone)
    assert installation.install("report") == "pip install '.[report]'"
    installed(monkeypatch, {"url": clone.as_uri(), "dir_info": {"editable": True}})
    assert installation.install("cloud") == "pip install -e '.[cloud]'"


def test_where_nothing_is_installed_it_is_the_name_on_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", none)
    assert installation.install("report") == "pip install 'grpo-adv[report]'"


def test_a_pip_of_another_python_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, None)
    monkeypatch.setattr(shutil, "which", {"pip": "/elsewhere/bin/pip"}.get)
    assert installation.install("report") == f"{sys.executable} -m pip install 'grpo-adv[report]'"


def test_uv_and_pipx_are_asked_where_they_installed_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed(monkeypatch, None, "uv")
    assert installation.install("report") == f"uv pip install --python {sys.executable} 'grpo-adv[report]'"
    (tmp_path / "prefix" / "pipx_metadata.json").touch()
    assert installation.install("report") == "pipx install --force 'grpo-adv[report]'"
    (tmp_path / "prefix" / "uv-receipt.toml").touch()
    assert installation.install("report") == "uv tool install --force 'grpo-adv[report]'"
