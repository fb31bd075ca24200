"""The screen: three panes over a model, the keys of `KEYS`, and slow work on threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import PurePath
from threading import Lock, Thread, current_thread
from typing import ClassVar

import numpy as np
import polars as pl
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Static

from grpo_cli.engine.estimators.registry import ESTIMATORS
from grpo_cli.engine.presets import presets
from grpo_cli.errors import GrpoError
from grpo_cli.files.stores import is_url
from grpo_cli.guests.browse import layout
from grpo_cli.guests.browse.keys import KEYS, described, footer
from grpo_cli.guests.browse.lines import GroupLines, rollout_lines, sign_of, trend_line
from grpo_cli.guests.browse.model import FACTS, KINDS, ORDER, Model, Rollout, commands, options_for
from grpo_cli.guests.browse.search import Search
from grpo_cli.guests.browse.widgets import STYLES, Choose, Listing, Notice, Page
from grpo_cli.options.commands import COMMANDS
from grpo_cli.options.conditions import Filter
from grpo_cli.options.given import Given
from grpo_cli.options.resolve import plan_of, with_effect
from grpo_cli.plugins import named
from grpo_cli.read.texts import Labels, Passage, Reader, TextColumns, code_of, key_of
from grpo_cli.render.explain import of_row
from grpo_cli.render.text import clean, count, number

PROGRESS = 0.1  # seconds between two updates of a search's progress
PROMPT = 200  # characters of a prompt that a list may show


class Browser(App[list[str]]):
    """The screen of `grpo-adv browse`; it returns the commands that the user asked for."""

    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (72, "-wide")]  # noqa: RUF012 - as Textual declares it; from so many cells on
    # The terminal's own colours: they fit a light and a dark one.
    CSS = """
    Screen, Static, Listing, Page, Input, Vertical, Horizontal { background: ansi_default; color: ansi_default; }
    #title { text-style: bold; height: 1; }
    #trend { height: 1; display: none; }
    #lists { width: 50%; min-width: 42; max-width: 100; }
    #groups { height: 3fr; }
    #rollouts { height: 2fr; }
    #text { width: 1fr; border-left: solid ansi_default; }
    /* Beside each other, 17 cells of the text would be left of 60. */
    .-narrow #panes { layout: vertical; }
    .-narrow #lists { width: 100%; max-width: 100%; height: 1fr; }
    .-narrow #text { width: 100%; height: 1fr; border-left: none; border-top: solid ansi_default; }
    #status { height: auto; min-height: 1; max-height: 4; }
    #keys { height: 1; }
    #line { display: none; height: 1; border: none; padding: 0; }
    Listing, Page { scrollbar-size-vertical: 1; overflow-x: hidden; overflow-y: scroll;
        scrollbar-color: ansi_default; scrollbar-background: ansi_default; }
    ModalScreen { align: center middle; background: ansi_default; }
    #box { width: 90%; height: 90%; border: solid ansi_default; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding(key.key, key.action, key.help, show=False) for key in KEYS]

    def __init__(self, model: Model, given: Given) -> None:
        """`given` are the options of the command. Raises what is wrong with the first view."""
        super().__init__(ansi_color=True)
        self.console.push_theme(STYLES)
        self.model, self.given = model, given
        texts = given.among(("prompt", "response", "messages"))
        self.texts = TextColumns(**{"response": given.text_column or "", **texts})
        self.where = Filter.parse(given.where).text if "where" in given else ""
        self.sort = ORDER if given.sort is None else given.sort
        self.shown = model.shown(self.where, self.sort)
        self.first = None if given.show is None else code_of(model.inspection.narrow, given.show)
        self.rollouts: list[Rollout] = []
        self.fields = False
        self.whole = False
        self.folding = False  # whether the turns of the next rollout are folded
        self.pinned: list[Passage] | None = None
        self.passages: list[Passage] = []
        self.search: Search | None = None
        self.kind = "select"  # what the groups were last written as
        self.last_commands: list[str] = []  # that c has shown; they are printed when the screen is left
        self.tasks: dict[str, Thread] = {}
        self._labels = Labels(model.inspection.narrow)
        self._reading = Lock()

    # --- the screen --------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield Static(id="trend", markup=False)
        self.groups = Listing(self.open_group, id="groups")
        self.rows = Listing(self.read, id="rollouts")
        self.page = Page(self.read, id="text")
        with Horizontal(id="panes"):
            with Vertical(id="lists"):
                yield self.groups
                yield self.rows
            yield self.page
        self.line = Input(id="line", compact=True)
        yield self.line
        yield Static(id="status", markup=False)
        yield Static(footer(), id="keys", markup=False)

    def on_mount(self) -> None:
        self.groups.focus()
        self.arrange(self.first)
        self.say(self.model.warnings[0] if self.model.warnings else "")
        self.aside(self._prepare, "prepare")

    def aside(self, task: Callable[[], None], group: str) -> None:
        """Run a task on a daemon thread; of a group, only the newest counts."""

        def run() -> None:
            try:
                task()
            except (Exception, pl.exceptions.PanicException) as error:  # noqa: BLE001 - no file may end the program
                kind = "" if isinstance(error, (GrpoError, OSError)) else f"{type(error).__name__}: "
                self.tell(self.say, f"{kind}{error}")

        self.tasks[group] = thread = Thread(target=run, daemon=True)
        thread.start()

    def is_newest(self, group: str) -> bool:
        """Whether the task that asks is the newest of its group."""
        return self.tasks[group] is current_thread()

    def tell(self, do: Callable[..., object], *args: object) -> None:
        """Call something on the thread of the screen, from a task; nothing if the screen is gone."""
        with suppress(RuntimeError):  # its loop is closed
            self.call_later(do, *args)

    def say(self, text: str) -> None:
        """Show a line at the bottom, without control characters."""
        self.query_one("#status", Static).update(clean(text))

    def title_line(self) -> None:
        """Which files, what is shown of them, and how it is computed."""
        names = [table.name for table in self.model.tables]
        files = clean(PurePath(names[0]).name) if len(names) == 1 else count(len(names), "file")
        groups = count(self.model.size, "group")
        if self.where:
            groups = f"{len(self.shown):,} of {groups} where {clean(self.where)}"
        order = "" if self.sort == ORDER else f", by {self.sort} down"
        plan = self.model.inspection.scored.plan
        computed = f"{plan.method}, scale {plan.divisor.level}"
        preset = self.given.preset
        if preset is not None:
            computed = f"preset {preset}, {computed}"
        self.query_one("#title", Static).update(f"{files}: {groups}{order} | {clean(computed)}")

    def arrange(self, code: int | None, row: int | None = None) -> None:
        """List the groups again, with the place at a group (and a row of it) if it is listed."""
        self.shown = self.model.shown(self.where, self.sort)
        lines = GroupLines(self.model, self._labels, self.shown, lambda codes: self._learn(lines, codes))
        self.groups.fill(len(lines), lines.line, lines.head, self.place_of(code))
        self.title_line()
        self.open_group(row)

    def _learn(self, lines: GroupLines, codes: list[int]) -> None:
        """Read the prompts of groups that became visible, to show beside their keys."""
        narrow = self.model.inspection.narrow
        if any(is_url(table.name) for table in self.model.tables):
            return  # each prompt would be a request

        def read() -> None:
            firsts = narrow.groups.first.gather(codes).to_numpy().astype(np.int64)
            conversations = Reader(narrow, self.texts).said(firsts)
            prompts = (clean(each.prompt[-1].text[:PROMPT]) if each.prompt else "" for each in conversations)
            lines.learn(dict(zip(codes, prompts, strict=True)))
            self.tell(self.groups.refresh)

        self.aside(read, f"prompts {codes[0]}")

    def place_of(self, code: int | None) -> int:
        """The place of a group in the list; 0 if it is not listed."""
        return next(iter(np.flatnonzero(self.shown == code).tolist()), 0)

    @property
    def code(self) -> int | None:
        """The group at the place."""
        return int(self.shown[self.groups.place]) if len(self.shown) else None

    @property
    def rollout(self) -> Rollout | None:
        """The rollout at the place."""
        return self.rollouts[self.rows.place] if self.rollouts else None

    @property
    def row(self) -> int | None:
        """The row at the place."""
        return None if self.rollout is None else self.rollout.position

    def open_group(self, row: int | None = None) -> None:
        """List the rollouts of the group at the place."""
        self.rollouts = [] if self.code is None else self.model.rollouts(self.code)
        at = next((at for at, line in enumerate(self.rollouts) if line.position == row), 0)
        head, lines = rollout_lines(self.rollouts, several=len(self.model.tables) > 1)
        self.rows.fill(len(lines), lambda at, _: lines[at], lambda _: head, at)
        self.read()

    # --- the text ----------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read and lay out what the right side shows; only the newest request counts."""
        if self.page.size.width:  # else the page says so as soon as it has a size
            self.aside(self._read, "text")

    def _read(self) -> None:
        with self._reading:  # one row at a time, skipping those that the user has left meanwhile
            if self.is_newest("text"):
                self._read_row()

    def _read_row(self) -> None:
        rollout = self.rollout
        if rollout is None:
            self.tell(self._show_text, rollout, "", [], [])
            return
        row = rollout.position
        stop = ""
        passages = list[Passage]()
        lines = list[Text]()
        try:
            reader = Reader(self.model.inspection.narrow, self.texts)
            (conversation,) = reader.said(np.array([row]))
            stop = conversation.stop
            passages = [] if self.fields else [*conversation.prompt, *conversation.response]
            if not self.fields and not passages:
                self.tell(self.say, "no text column found, so all fields are shown; --response COL names one")
            passages = passages or reader.fields(row)
            if self.pinned is not None:
                lines = layout.beside(self.pinned, passages, self.page.wide)
            else:
                needle = "" if self.search is None else self.search.needle
                folded = self.folding and not needle
                lines = layout.page(passages, self.page.wide, whole=self.whole, needle=needle, folded=folded)
        finally:
            if self.is_newest("text"):
                self.tell(self._show_text, rollout, stop, passages, lines)

    def _head_of(self, rollout: Rollout, stop: str) -> list[Text]:
        """What is known of a rollout, and where it is."""
        inspection = self.model.inspection
        line = rollout.line
        sign = sign_of(line.advantage)
        advantage = f" · advantage {'+' * (sign == 'good')}{number(line.advantage)}"
        parts = list[str]()
        if line.length is not None:
            length = number(line.length)
            of_tokens = "tok" in inspection.columns["length"]
            parts.append(f"{length} tokens" if of_tokens else f"length {length}")
        if inspection.by is not None:
            parts.append(f"{clean(inspection.columns['by'])} {inspection.by[rollout.position]}")
        if stop:
            parts.append(clean(stop))
        parts.append(f"{clean(PurePath(line.file).name)} row {line.row:,}")
        reward = Text(f"reward {number(line.reward)}")
        return [reward, Text.styled(advantage, sign), *(Text(f" · {part}") for part in parts)]

    def _show_text(self, rollout: Rollout | None, stop: str, passages: list[Passage], lines: list[Text]) -> None:
        if rollout is not self.rollout:
            return
        head = [Text("no group meets the condition")] if rollout is None else self._head_of(rollout, stop)
        at = self.page.place if passages == self.passages else 0
        self.passages = passages
        hits = [at for at, line in enumerate(lines) if layout.has(line, "hit")]
        if hits:
            at = max(hits[0] - 2, 0)
        self.page.fill(head, lines, at)

    def action_fold(self) -> None:
        """Fold every turn but the last, or unfold all of them."""
        self.folding = not self.folding
        self.read()

    def action_fields(self) -> None:
        self.fields = not self.fields
        self.read()

    def action_arithmetic(self) -> None:
        if self.row is not None:
            self.aside(self._work_out, "arithmetic")

    def _work_out(self) -> None:
        inspection = self.model.inspection
        plan = inspection.scored.plan
        row = self.row
        lines = [] if row is None else of_row(plan, inspection.narrow, row, self.size.width * 9 // 10 - 6)
        self.tell(self.push_screen, Notice(f"{plan.method}: {plan.estimator.summary}", lines))

    def action_whole(self) -> None:
        self.whole = not self.whole
        self.read()

    def action_compare(self) -> None:
        self.pinned = self.passages if self.pinned is None else None
        self.say("" if self.pinned is None else "this text stays on the left; c: one text again")
        self.read()

    def action_copy(self) -> None:
        """Copy the text; the terminal is asked to keep it."""
        text = "\n\n".join(passage.text for passage in self.passages)
        self.copy_to_clipboard(text.encode("utf-8", "replace").decode())
        self.say(f"copied {count(len(text), 'character')}, if the terminal allows it")

    # --- moving ------------------------------------------------------------------------------------------------

    def action_inside(self) -> None:
        (self.rows if self.focused is self.groups else self.page).focus()

    def action_leave(self) -> None:
        """Out of the line, the search, the text, the rollouts."""
        if self.line.display:
            self.line.display = False
            self.groups.focus()
        elif self.search is not None and self.search.going:
            self.search.going = False
            self.say(self.search.says)
        elif self.fields or self.pinned is not None:
            self.fields, self.pinned = False, None
            self.read()
        elif self.search is not None:
            self.search = None
            self.say("")
            self.read()
        else:
            (self.rows if self.focused is self.page else self.groups).focus()

    def action_dead(self) -> None:
        try:
            self.to(self.model.dead(self.shown, self.groups.place))
        except GrpoError as error:
            self.say(str(error))

    def to(self, code: int, row: int | None = None) -> None:
        """Go to a group, and to a row of it."""
        self.groups.put(self.place_of(code))
        self.open_group(row)

    # --- order and condition -----------------------------------------------------------------------------------

    def ask(self, prompt: str, value: str, then: Callable[[str], None]) -> None:
        """Ask for a line of text."""
        self.on_answer = then
        self.line.placeholder = prompt
        self.line.value = value
        self.line.display = True
        self.line.focus()
        self.say(prompt)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Give the typed line to its action."""
        self.line.display = False
        self.groups.focus()
        self.say("")
        self.on_answer(event.value.strip())

    def action_where(self) -> None:
        def then(text: str) -> None:
            try:
                self.model.shown(text)
            except GrpoError as error:
                self.say(str(error))
                return
            self.where = text
            self.arrange(self.code)
            self.say(f"{count(len(self.shown), 'group')} of {self.model.size:,}" if text else "")

        self.ask("condition, such as 0 < mean < 1 and size == 8; empty shows all groups", self.where, then)

    def action_sort(self) -> None:
        def then(name: str | None) -> None:
            if name is not None:
                self.sort = name
                self.arrange(self.code)

        self.push_screen(Choose("sort by", {name: FACTS[name] for name in self.model.facts}, self.sort), then)

    # --- the plan ----------------------------------------------------------------------------------------------

    def action_method(self) -> None:
        names = {name: row.summary for name, row in ESTIMATORS.items() if name != "expression"}
        self._choose_plan("method", names, self.model.inspection.scored.plan.method)

    def action_preset(self) -> None:
        names = {name: f"{row.framework}, {row.estimator}" for name, row in presets().items()}
        self._choose_plan("preset", names, self.given.preset or "")

    def _choose_plan(self, option: str, names: Mapping[str, str], now: str) -> None:
        def then(name: str | None) -> None:
            if name is not None:
                # Options of the previous method or preset do not apply to the new one.
                gone = {"preset", "method", "param", "expr"}
                given = Given(self.given.without(gone), **{option: name})
                self.say(f"computing {name} ...")
                self.aside(lambda: self._compute(name, given), "plan")

        self.push_screen(Choose(option, names, now), then)

    def _compute(self, name: str, given: Given) -> None:
        model = self.model.under(plan_of(with_effect(given)))  # another method may have no use for a column
        model.shown(self.where)  # raises what the condition names and these groups do not have
        if self.is_newest("plan"):
            self.tell(self._put, model, given, f"{name}: advantages, order and status are recomputed")

    def _put(self, model: Model, given: Given, said: str) -> None:
        """Show another model at the same place."""
        code = self.code
        row = self.row
        self.model, self.given = model, given
        self.arrange(code, row)
        self.say(said)

    # --- search ------------------------------------------------------------------------------------------------

    def action_search(self) -> None:
        def then(text: str) -> None:
            if self.search is not None:
                self.search.going = False
            self.search = search = Search(self.model, self.shown, text, self.texts) if text else None
            if search is None:
                self.read()
            else:
                self.say(f"searching {text}: Esc stops it")
                self.aside(lambda: self._search(search), "search")

        self.ask("text to search for", "" if self.search is None else self.search.needle, then)

    def _search(self, search: Search) -> None:
        last_told = 0.0
        for new_hits in search.run():
            if new_hits and len(search.hits) == new_hits:  # the first ones
                self.tell(self._to_hit, search, 0)
            if time.monotonic() > last_told + PROGRESS or not search.going:
                self.tell(self.say, search.says)
                last_told = time.monotonic()

    def _to_hit(self, search: Search, by: int) -> None:
        if search is self.search and search.hits:
            row = search.go(by)
            self.fields = False
            self.to(self.model.codes[row], row)

    def action_hit(self, by: int) -> None:
        if self.search is None:
            self.say("no search yet: / starts one")
            return
        self._to_hit(self.search, by)
        self.say(self.search.says)

    # --- files -------------------------------------------------------------------------------------------------

    def action_write(self) -> None:
        def chosen(kind: str | None) -> None:
            if kind == "select" and not self.where:
                self.say("select needs a condition: set one with w")
            elif kind is not None:
                self.kind = kind
                self.ask(f"{kind}: name of the new file, such as alive.jsonl", "", write_to)

        def write_to(name: str) -> None:
            if name == "-":
                self.say("standard output is this screen: give a file name")
            elif name:
                self.say(f"writing {name} ...")
                command, given = options_for(self.kind, self.given, self.where, name)
                self.aside(lambda: self._write(command, given, name), f"write {name}")

        self.push_screen(Choose("write the groups shown with", KINDS, self.kind), chosen)

    def _write(self, command: str, given: Given, name: str) -> None:
        groups = count(len(self.shown), "group")
        job = COMMANDS[command].job
        steps = import_module(job.partition(":")[0])
        steps.run(named(job).of(Given(given, quiet=True)))
        self.tell(self.say, f"{command}: wrote {groups} to {name}")

    def action_command(self) -> None:
        key = None if self.code is None else key_of(self.model.inspection.narrow, self.code)
        self.last_commands = commands(self.given, self.kind, where=self.where, sort=self.sort, show=key)
        self.push_screen(Notice("commands", [line for command in self.last_commands for line in (command, "")]))

    def action_help(self) -> None:
        marks = f"status: = {self.model.equal} (green: always solved, red: never solved), 1 singleton, ? without a reward, < small group, m masked, x left out"
        self.push_screen(Notice("keys", [marks, *self.model.warnings], described))

    async def action_quit(self) -> None:
        self.exit(self.last_commands)

    def finish(self) -> None:
        """Wait for files that are being written, and for nothing that is being read."""
        for name, task in self.tasks.items():
            if name.startswith("write "):
                task.join()

    # --- what comes later --------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        _ = self.model.trend, self.model.fact("advantage")  # are kept, so the screen and a key find them computed
        self.tell(self._show_trend)

    def _show_trend(self) -> None:
        line = self.query_one("#trend", Static)
        trend = self.model.trend
        if trend is not None and len(trend.lines) > 1:
            line.update(trend_line(trend, self.size.width, self.model.equal))
            line.display = True
