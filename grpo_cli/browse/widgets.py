"""Lists and pages that render only their visible lines, and dialogs made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar, Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip

from grpo_cli.browse.layout import Line, Piece

# The colours of the terminal, each with one meaning; none is the only sign.
STYLES: Final = {
    "": Style(),
    "head": Style(bold=True),
    "key": Style(bold=True, color="cyan"),  # it can be pressed
    "model": Style(bold=True, color="magenta"),  # the turn of the model
    "other": Style(bold=True, color="blue"),  # all other turns
    "good": Style(color="green"),  # always solved, a positive advantage
    "bad": Style(color="red"),  # never solved, a negative advantage
    "dim": Style(dim=True),
    "note": Style(italic=True),
    "code": Style(italic=True),
    "strong": Style(bold=True),
    "hit": Style(reverse=True, bold=True),
    "differs": Style(underline=True, bold=True),
}
HERE: Final = "▸"


class _Lines(ScrollView, can_focus=True):
    """Lines under a fixed head, and the keys that move in them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home,g", "end(0)", show=False),
        Binding("end,G", "end(1)", show=False),
    ]
    place = 0
    count = 0
    head: Callable[[int], Line]  # for a width; it does not scroll
    line: Callable[[int, int], Strip]  # by its place, for a width
    go: Callable[[int], None]  # to a line

    def resize_to(self, count: int) -> None:
        """Set the number of lines."""
        self.count = count
        self.virtual_size = Size(0, count + 1)
        self.refresh()

    @property
    def room(self) -> int:
        """How many lines fit on the screen."""
        return max(self.scrollable_content_region.height - 1, 1)

    @property
    def wide(self) -> int:
        """The width of a line, without the scroll bar."""
        return max(self.size.width - self.styles.scrollbar_size_vertical, 1)

    def scroll_at(self, y: int) -> None:
        """Scroll to a line."""
        if y != self.scroll_offset.y:
            self.scroll_to(y=y, animate=False, force=True, immediate=True)

    def render_line(self, y: int) -> Strip:
        """A line of the screen."""
        width, at = self.wide, self.scroll_offset.y + y - 1
        if not y:
            return _strip(
                self.head(width), width, Style(reverse=True, bold=True) if self.has_focus else Style(underline=True)
            )
        return self.line(at, width) if at < self.count else Strip.blank(self.size.width)

    def action_move(self, by: int) -> None:
        self.go(self.place + by)

    def action_page(self, by: int) -> None:
        self.go(self.place + by * self.room)

    def action_end(self, last: int) -> None:
        self.go(last * self.count)


def _strip(pieces: Line, width: int, style: Style | None = None) -> Strip:
    reverse = bool(style and style.reverse)  # a colour would become the background
    segments = [Segment(piece.text, style if reverse else STYLES[piece.style] + style) for piece in pieces]
    return Strip(segments).adjust_cell_length(width, style)


class Listing(_Lines):
    """A list with a place that keys move."""

    class Moved(Message):
        """The place has changed."""

        def __init__(self, listing: Listing) -> None:
            super().__init__()
            self.listing = listing

    def __init__(self, **names: Any) -> None:
        super().__init__(**names)
        self._make: Callable[[int, int], Line] = lambda _at, _width: ()
        self._make_head: Callable[[int], str] = lambda _width: ""

    def fill(self, count: int, line: Callable[[int, int], Line], head: Callable[[int], str], place: int = 0) -> None:
        """Replace the lines, with the place at one of them."""
        self._make, self._make_head = line, head
        self.resize_to(count)
        self.put(place)

    def put(self, place: int) -> None:
        """Move the place without a message."""
        self.place = max(min(place, self.count - 1), 0)
        self.refresh()
        self.show_place()

    def go(self, place: int) -> None:
        """Move the place."""
        before = self.place
        self.put(place)
        if self.place != before:
            self.post_message(self.Moved(self))

    def on_click(self, event: Any) -> None:
        """To the line under the mouse."""
        if event.y:
            self.go(self.scroll_offset.y + event.y - 1)

    def on_resize(self) -> None:
        """Keep the place visible."""
        self.show_place()

    def show_place(self) -> None:
        """Scroll until the place is visible."""
        self.scroll_at(min(max(self.scroll_offset.y, self.place - self.room + 1), self.place))

    def head(self, width: int) -> Line:
        """The names of the columns, and the place where they leave room for it."""
        text, place = f"  {self._make_head(max(width - 2, 1))}".ljust(width), f"  {self.place + 1:,}/{self.count:,}  "
        at = text.find(" " * len(place), 2)
        return (Piece(text if at < 0 else text[: at + 1] + place.strip() + text[at + len(place) - 3 :]),)

    def line(self, at: int, width: int) -> Strip:
        """A line; the one at the place is marked, and reversed if the list has the focus."""
        here = at == self.place
        pieces = (Piece(f"{HERE if here else ' '} "), *self._make(at, max(width - 2, 1)))
        return _strip(pieces, width, Style(reverse=here and self.has_focus, bold=here or None))


class Page(_Lines):
    """A text to scroll through; its place is the first visible line."""

    class Resized(Message):
        """The page has another size."""

        def __init__(self, page: Page) -> None:
            super().__init__()
            self.page = page

    def __init__(self, **names: Any) -> None:
        super().__init__(**names)
        self._title: Line = ()
        self.lines: Sequence[Line] = ()
        self.heads: Sequence[int] = ()  # the first lines of its turns

    def fill(self, head: Line, lines: Sequence[Line], at: int = 0, heads: Sequence[int] = ()) -> None:
        """Replace the text and go to a line."""
        self._title, self.lines, self.heads = head, lines, heads
        self.resize_to(len(lines))
        self.go(at)

    def go(self, place: int) -> None:
        """Scroll."""
        self.place = max(min(place, self.count - self.room), 0)
        self.scroll_at(self.place)

    class Pressed(Message):
        """A line was clicked."""

        def __init__(self, page: Page, line: int) -> None:
            super().__init__()
            self.page, self.line = page, line

    def on_click(self, event: Any) -> None:
        """Say which line it was."""
        if event.y:
            self.post_message(self.Pressed(self, self.scroll_offset.y + event.y - 1))

    def on_resize(self) -> None:
        """Say so: lines are made for a width."""
        self.post_message(self.Resized(self))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """The mouse scrolls as well."""
        super().watch_scroll_y(old_value, new_value)
        self.place = round(new_value)

    def head(self, width: int) -> Line:
        """What the text is: as many parts of it as fit, since half a number is another number."""
        ends = accumulate(cell_len(piece.text) for piece in self._title)
        fitting = sum(end <= width for end in ends)
        return self._title[: max(fitting, 1)]

    def line(self, at: int, width: int) -> Strip:
        """One of its lines, which were made for a width."""
        return _strip(self.lines[at], width)


# --- dialogs ---------------------------------------------------------------------------------------------------


def _box(title: str, inside: _Lines) -> Vertical:
    box = Vertical(inside, id="box")
    box.border_title = title
    return box


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
        self._lines: list[Line] = [
            (Piece(f"{name:{wide}}", "strong"), Piece(f"  {about}")) for name, about in names.items()
        ]

    def compose(self) -> ComposeResult:
        yield _box(self._title, Listing())

    def on_mount(self) -> None:
        place = self._names.index(self._now) if self._now in self._names else 0
        listing = self.query_one(Listing)
        listing.fill(len(self._lines), lambda at, _: self._lines[at], lambda _: "Enter chooses, Esc goes back", place)

    def on_listing_moved(self, event: Listing.Moved) -> None:
        """Keep the message of this dialog's list from the screen below."""
        event.stop()

    def action_choose(self) -> None:
        self.dismiss(self._names[self.query_one(Listing).place])


class Notice(ModalScreen[None]):
    """A page of text over the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark,a,o", "dismiss", show=False)]

    def __init__(self, title: str, lines: Callable[[int], Iterable[Line]]) -> None:
        """`lines` are made for a width."""
        super().__init__()
        self._title, self._lines = title, lines

    def compose(self) -> ComposeResult:
        yield _box(self._title, Page())

    def on_resize(self) -> None:
        """The lines fit the page."""
        page = self.query_one(Page)
        lines = [*self._lines(page.wide)]
        scrolls = f", ↓ scrolls ({len(lines)} lines)" if len(lines) > page.room else ""
        page.fill((Piece(f"Esc goes back{scrolls}"),), lines)
