"""`grpo-adv skill`: what a coding agent should know about this tool."""

from __future__ import annotations

from pathlib import Path

from grpo_cli.options.given import Given

NAME = "grpo-adv"
SOURCE = Path(__file__).parents[1] / "skills" / NAME / "SKILL.md"


def skill(given: Given) -> None:
    """Print the skill, or write it into a folder of skills."""
    text = SOURCE.read_text(encoding="utf-8")
    folder = given.install
    if folder is None:
        print(text, end="")
        return
    from grpo_cli.errors import UsageError, Way, printable
    from grpo_cli.files.atomic import replacing
    from grpo_cli.files.finished import expect

    target = Path(folder, NAME, "SKILL.md")
    force = bool(given.force)
    cures = ["remove it", "choose another folder"]
    for path in (target.parent, target):  # the folder of skills may be a link, but nothing inside of it
        if path.is_symlink():
            raise UsageError("is a link", cures, place=path)
    if target.exists() and not target.is_file():
        raise UsageError("is not a file", cures, place=target)
    if target.exists() and not force:
        raise UsageError(
            "exists", [Way("--force", why="to replace it", lead="add"), "choose another folder"], place=target
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    expect(1)
    with replacing(target, force=force) as handle:
        handle.write(text.encode())
    print(printable(str(target)))
