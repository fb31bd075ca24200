"""The options that were given: a dictionary, whose attributes are those that code reads by name."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from grpo_cli.options.keywords import Number, Switch, Text, Whole

Texts = Sequence[str]


class Given(dict[str, Any]):
    """Options by name, with values as the command line makes them; those that were not given are absent.

    As an attribute, an option that was not given is None, or empty if it may be given several times. A name that is not among
    the attributes is an error for type checkers, and for Python.
    """

    against: str
    all: Switch
    before: Texts
    best: Text
    by: Text
    by_position: Switch
    color: Text
    columns: Texts
    compared_presets: Texts
    config: Text
    contenders: Texts
    debug: Switch
    engine: Text
    expect_size: Whole
    explain: Switch
    file: str
    force: Switch
    form: Text
    format: Text
    group: Texts
    inputs: Texts
    install: Text
    json: Switch
    keep: Texts
    kl_estimator: Text
    kl_from: Text
    kl_reduce: Text
    length_column: Text
    map: Texts
    mask: Text
    max_line: Whole
    method: Text
    most: Whole
    most_by: Text
    name: Text
    on_error: Text
    output: Text
    param: Texts
    pass_at: Text
    per_group: Whole
    per_token: Switch
    pick: Text
    plan_by: Text
    plans: Mapping[str, Given] | None
    preset: Text
    quiet: Switch
    ray_address: Text
    rescored: Text
    rescored_column: Text
    reward: Texts
    rollout: Text
    rollout_reward: Text
    set: Texts
    show: Text
    solved_at: Number
    solved_from: Number
    sort: Text
    source: str
    stream: Switch
    summary: Text
    target: Text
    text_column: Text
    to: Text
    top: Whole
    where: Texts
    write: Switch

    def __init__(self, given: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), **more: Any) -> None:
        super().__init__(given, **more)
        # The command that they are given to; empty where no command is meant.
        self.command = ""
        # Those that a file of options sets: it serves several commands, so they may be without effect in this one.
        self.of_file: Mapping[str, Any] = {}
        if isinstance(given, Given):
            self.command, self.of_file = given.command, given.of_file

    def to_command(self, name: str) -> Given:
        """The same options, given to this command."""
        given = copy(self)
        given.command = name
        return given

    def is_typed(self, name: str) -> bool:
        """Whether the option is given, and not by a file of options alone."""
        return name in self and dict.get(self, name) != self.of_file.get(name)

    def typed_items(self, name: str) -> list[Any]:
        """What is given of an option that may be given several times, without what a file of options gives."""
        return [item for item in self.get(name, ()) if item not in self.of_file.get(name, ())]

    def among(self, names: Container[str]) -> Given:
        """The options with these names."""
        return self._of({name: value for name, value in self.items() if name in names})

    def without(self, names: Container[str]) -> Given:
        """The options with other names."""
        return self._of({name: value for name, value in self.items() if name not in names})

    def _of(self, options: Mapping[str, Any]) -> Given:
        some = Given(options)
        some.command = self.command
        some.of_file = self.of_file
        return some

    if not TYPE_CHECKING:  # it would allow every name

        def __getattr__(self, name: str) -> Any:
            kind = Given.__annotations__.get(name)
            if kind is None:
                raise AttributeError(name)
            return self.get(name, () if kind == "Texts" else None)
