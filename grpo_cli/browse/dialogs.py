"""What is shown over the screen: a list to choose from, and a page of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from grpo_cli.browse import layout
from grpo_cli.browse.widgets import Listing, Page


class Choose(ModalScreen[str]):
    """A list to choose from."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", show=False),
        Binding("enter", "choose", show=False),
    ]

    def __init__(self, title: str, names: Mapping[str, str], now: str) -> None:
        super().__init__()
        self._title, self._names, self._now = title, [*names], now
        wide = max(map(len, names))
        self._lines = [f"{name:{wide}}  {about}" for name, about in names.items()]

    def compose(self) -> ComposeResult:
        box = Vertical(id="box")
        box.border_title = self._title
        with box:
            yield Listing()

    def on_mount(self) -> None:
        place = self._names.index(self._now) if self._now in self._names else 0
        listing = self.query_one(Listing)
        listing.fill(len(self._lines), lambda at, _: self._lines[at], lambda _: "Enter chooses, Esc goes back", place)

    def on_listing_moved(self, event: Listing.Moved) -> None:
        """It is the list of this dialog alone."""
        event.stop()

    def action_choose(self) -> None:
        self.dismiss(self._names[self.query_one(Listing).place])


class Said(ModalScreen[None]):
    """A page of text over the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark,a,o", "dismiss", show=False)]

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__()
        self._title, self._lines = title, lines

    def compose(self) -> ComposeResult:
        box = Vertical(id="box")
        box.border_title = self._title
        with box:
            yield Page()

    def on_resize(self) -> None:
        """The lines fit the page."""
        page = self.query_one(Page)
        width = max(page.size.width - 1, 1)
        page.fill("Esc goes back", [line for text in self._lines for line in layout.wrapped(text, width)])
