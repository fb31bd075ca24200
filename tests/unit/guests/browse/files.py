"""Small files of rollouts, and models and screens over them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Input

from grpo_cli.guests.browse.app import Browser
from grpo_cli.guests.browse.model import Model
from grpo_cli.options.given import Given
from grpo_cli.read.known_names import STEP_LIKE
from grpo_cli.runs.inspect import Job
from grpo_cli.stats.inspection import View
from tests.support.jobs import write

ROUNDS = 8  # of messages: from a widget to the screen and back each goes through some
REWARDS: dict[str, list[float]] = {
    "easy": [1, 1, 1],
    "mixed": [0, 1, 0, 0],
    "graded": [0.25, 0.75],
    "never": [0, 0],
    "alone": [1],
}


def rollouts() -> list[dict[str, Any]]:
    """Groups of every kind, with messages, a length and an answer."""
    return [
        {
            "prompt_id": key,
            "prompt": [{"role": "user", "content": f"Question {key}?"}],
            "completion": [{"role": "assistant", "content": f"Answer {at} to {key}"}],
            "reward": reward,
            "length": 10 * (at + 1) + len(key),
            "answer": f"the truth of {key}",
        }
        for key, rewards in REWARDS.items()
        for at, reward in enumerate(rewards)
    ]


def model(*inputs: Path | str, **more: Any) -> Model:
    return Model.of(Job(inputs=[*map(str, inputs)], view=View(by_steps=True, named=STEP_LIKE), **more))


def model_of(folder: Path, rows: Sequence[dict[str, Any]], name: str = "rows.jsonl", **more: Any) -> Model:
    """A model over a file of these rows."""
    return model(write(folder / name, rows), **more)


def browser(made: Model, **given: Any) -> Browser:
    return Browser(made, Given(inputs=list(made.job.inputs), **given))


def screen(app: Browser) -> str:
    """What the terminal shows."""
    lines = (strip.text.rstrip() for strip in app.screen._compositor.render_strips())
    return "\n".join(lines) + "\n"


async def settled(app: Browser, pilot: Pilot[Any]) -> None:
    """Wait until all work on threads is shown; what it ends with, an error too, is for the screen to say."""
    quiet = 0
    while quiet < ROUNDS:
        await pilot.pause(0)
        busy = any(task.is_alive() for task in app.tasks.values())
        quiet = 0 if busy else quiet + 1
        if busy:
            await asyncio.sleep(0.001)


async def press(app: Browser, pilot: Pilot[Any], *keys: str) -> None:
    """Press keys, and wait for all that each of them does; one with a colon before it is typed as a line."""
    for key in keys:
        if key.startswith(":"):
            app.query_one(Input).value = key[1:]
        else:
            app.simulate_key(key)
        await settled(app, pilot)


def driven(app: Browser, *keys: str, size: tuple[int, int] = (80, 24), then: Callable[[Browser], Any] = screen) -> Any:
    """The screen (or what `then` finds of it) after some keys."""
    return walked(app, [keys], size=size, then=then)[0]


def walked(
    app: Browser,
    steps: Iterable[Sequence[str]],
    *,
    size: tuple[int, int] = (80, 24),
    then: Callable[[Browser], Any] = screen,
) -> list[Any]:
    """The screen (or what `then` finds of it) after each of some steps, which are keys, in one run of the screen."""

    async def run() -> list[Any]:
        found = []
        async with app.run_test(size=size) as pilot:
            await settled(app, pilot)
            for keys in steps:
                await press(app, pilot, *keys)
                found.append(then(app))
        return found

    return asyncio.run(run())
