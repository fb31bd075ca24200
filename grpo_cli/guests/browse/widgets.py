"""Lists and pages that render only their visible lines, and dialogs made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from rich.theme import Theme
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip

from grpo_cli.guests.browse.layout import shown, wrapped
from grpo_cli.guests.browse.lines import UPRIGHT

# The colours of the terminal, each with one meaning; none is the only sign.
STYLES = Theme({
    "key": "bold cyan",  # it can be pressed
    "model": "bold magenta",  # the turn of the model
    "other": "bold blue",  # all other turns
    "good": "green",  # always solved, a positive advantage
    "bad": "red",  # never solved, a negative advantage
    "dim": "dim",
    "note": "italic",
    "code": "dim",
    "upright": "",
    "strong": "bold",
    "hit": "bold reverse",
    "differs": "bold underline",
})  # fmt: skip


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
    head: Callable[[int], Text]  # for a width; it does not scroll
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
        self.scroll_to(y=y, animate=False, force=True, immediate=True)

    def render_line(self, y: int) -> Strip:
        """A line of the screen."""
        width = self.wide
        at = self.scroll_offset.y + y - 1
        if not y:
            return self.strip(self.head(width), width, "bold reverse" if self.has_focus else "underline")
        return self.line(at, width) if at < self.count else Strip.blank(self.size.width)

    def strip(self, line: Text, width: int, style: str = "") -> Strip:
        """A line as wide as the list, in a style besides its own ones."""
        drawn = Style.parse(style)
        if not drawn.reverse:
            return Strip(line.render(self.app.console)).adjust_cell_length(width).apply_style(drawn)
        # A colour would become the background; a strip of rewards would be upside down.
        upright = [span for span in line.spans if span.style == UPRIGHT]
        line = Text(line.plain + " " * (width - line.cell_len), style=drawn)
        for span in upright:
            line.stylize("not reverse", span.start + 1, span.end)
        return Strip(line.render(self.app.console)).adjust_cell_length(width)

    def action_move(self, by: int) -> None:
        self.go(self.place + by)

    def action_page(self, by: int) -> None:
        self.go(self.place + by * self.room)

    def action_end(self, last: int) -> None:
        self.go(last * self.count)


class Listing(_Lines):
    """A list with a place that keys move."""

    def __init__(self, moved: Callable[[], object], **names: Any) -> None:
        """`moved` is called when a key or the mouse has changed the place."""
        super().__init__(**names)
        self._moved = moved

    def fill(self, count: int, line: Callable[[int, int], Text], head: Callable[[int], str], place: int = 0) -> None:
        """Replace the lines, with the place at one of them."""
        self._make, self._make_head = line, head
        self.resize_to(count)
        self.put(place)

    def put(self, place: int) -> None:
        """Move the place."""
        self.place = max(min(place, self.count - 1), 0)
        self.refresh()
        self.on_resize()

    def go(self, place: int) -> None:
        """Move the place, and say so."""
        before = self.place
        self.put(place)
        if self.place != before:
            self._moved()

    def on_click(self, event: Any) -> None:
        """To the line under the mouse."""
        if event.y:
            self.go(self.scroll_offset.y + event.y - 1)

    def on_resize(self) -> None:
        """Scroll until the place is visible."""
        self.scroll_at(min(max(self.scroll_offset.y, self.place - self.room + 1), self.place))

    def head(self, width: int) -> Text:
        """The names of the columns, and the place where they leave room for it."""
        text = f"  {self._make_head(max(width - 2, 1))}".ljust(width)
        place = f" ({self.place + 1:,}/{self.count:,}) "
        at = text.find(f" {' ' * len(place)} ", 2)
        if at >= 0:
            text = text[:at] + place + text[at + len(place) :]
        return Text(text)

    def line(self, at: int, width: int) -> Strip:
        """A line; the one at the place is marked, and reversed if the list has the focus."""
        is_place = at == self.place
        line = Text.assemble("▸ " if is_place else "  ", self._make(at, max(width - 2, 1)))
        style = ""
        if is_place:
            style = "bold reverse" if self.has_focus else "bold"
        return self.strip(line, width, style)


class Page(_Lines):
    """A text to scroll through; its place is the first visible line."""

    def __init__(self, resized: Callable[[], object], **names: Any) -> None:
        """`resized` is called when its lines have to be made for another width."""
        super().__init__(**names)
        self._title: Sequence[Text] = ()
        self.lines: Sequence[Text] = ()
        self._resized = resized

    def fill(self, head: Sequence[Text], lines: Sequence[Text], at: int = 0) -> None:
        """Replace the text and go to a line."""
        self._title, self.lines = head, lines
        self.resize_to(len(lines))
        self.go(at)

    def go(self, place: int) -> None:
        """Scroll."""
        self.place = max(min(place, self.count - self.room), 0)
        self.scroll_at(self.place)

    def on_resize(self) -> None:
        self._resized()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """The mouse scrolls as well."""
        super().watch_scroll_y(old_value, new_value)
        self.place = round(new_value)

    def head(self, width: int) -> Text:
        """What the text is: as many parts of it as fit, since half a number is another number."""
        fitting = sum(end <= width for end in accumulate(part.cell_len for part in self._title))
        return Text.assemble(*self._title[: max(fitting, 1)])

    def line(self, at: int, width: int) -> Strip:
        """One of its lines, which were made for a width."""
        return self.strip(self.lines[at], width)


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
        self._title, self._names, self._now = title, names, now
        self._listing = Listing(lambda: None)

    def compose(self) -> ComposeResult:
        yield _box(self._title, self._listing)

    def on_mount(self) -> None:
        names = [*self._names]
        wide = max(map(len, names))

        def line(at: int, _: int) -> Text:
            name = names[at]
            return Text.assemble((f"{name:{wide}}", "strong"), f"  {self._names[name]}")

        place = names.index(self._now) if self._now in names else 0
        self._listing.fill(len(names), line, lambda _: "Enter chooses, Esc goes back", place)

    def action_choose(self) -> None:
        self.dismiss([*self._names][self._listing.place])


class Notice(ModalScreen[None]):
    """A page of text over the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark,a,o", "dismiss", show=False)]

    def __init__(self, title: str, texts: Iterable[str], first: Callable[[int], Iterable[Text]] = lambda _: ()) -> None:
        """The texts come after the lines that `first` makes for a width."""
        super().__init__()
        self._title, self._texts, self._first = title, texts, first
        self._page = Page(self._fill)

    def compose(self) -> ComposeResult:
        yield _box(self._title, self._page)

    def _fill(self) -> None:
        page = self._page
        lines = [*self._first(page.wide)]
        for text in self._texts:
            lines += wrapped(Text(shown(text)), page.wide)
        scrolls = f", ↓ scrolls ({len(lines)} lines)" if len(lines) > page.room else ""
        page.fill([Text(f"Esc goes back{scrolls}")], lines)
