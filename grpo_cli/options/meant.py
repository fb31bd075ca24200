"""What names mean that we do not have: algorithms and options of other tools, with the ways out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from grpo_cli.errors import Cure, UnknownName, Way


class Meaning(NamedTuple):
    """What to do instead, and the options that its sentences name: a command without them has no use for it."""

    cures: tuple[Cure, ...]
    options: frozenset[str] = frozenset()


def _said(*cures: Cure, options: str = "") -> Meaning:
    return Meaning(cures, frozenset(options.split()))


_DPO = _said("preference pairs are --to pairs")
_CRITIC = _said("its advantage needs the values of a critic, which reward files do not have", "grpo and rloo need none")
_RATIO = _said("it changes the ratio in the loss and keeps the advantage of grpo: --method grpo")
_DAPO = _said(
    "DAPO has the advantage of grpo: --method grpo",
    "its dynamic sampling is --zero-variance drop, its length penalty compute --overlong",
)
_SCALE = _said(
    Way("--scale", "group", "or --scale batch", lead="to divide by a standard deviation,"),
    Way("--whiten", "sample", "standardises all advantages"),
)
_ONE_VALUE = _said("one value at a time: --rows \"COLUMN == 'VALUE'\"", options="rows")
_KEY = _said(Way("--group", why="names the key of a group", fill="COL"))
_REWARD = _said(Way("--reward", why="names the reward", fill="COL"))
_RATE = _said("solve_rate is a fact of a group: --where 'solve_rate < 0.9'", options="where")
_OVER = _said(Way("--force", why="replaces an output that exists"), Way("--replace", why="a column that exists"))
_MORE = _said(
    Way("--full", why="shows every section"),
    Way("--explain", why="works out one group"),
    Way("--debug", why="shows where an error comes from"),
)
_SIZE = _said(
    Way("--group", why="where a column names the prompt, else --group-size N", fill="COL"), options="group-size"
)

# An option, or "" for the names of the options themselves; a name as `_plain` writes it; what it means here.
MEANT: Mapping[str, Mapping[str, Meaning]] = {
    "method": {
        "dapo": _DAPO,
        **dict.fromkeys(("gspo", "gspotoken", "cispo", "gmpo", "sapo"), _RATIO),
        **dict.fromkeys(("ppo", "gae", "vapo", "vcppo", "a2c", "a3c"), _CRITIC),
        **dict.fromkeys(("drgrpo", "grpodonright", "grponostd"), _said("Dr. GRPO is --method dr-grpo")),
    },
    "to": dict.fromkeys(("dpo", "ipo", "orpo", "simpo", "preference", "preferences", "rm"), _DPO),
    "": {
        **dict.fromkeys(("eps", "divisoreps"), _said(Way("--epsilon", lead="the epsilon of the divisor is"))),
        **dict.fromkeys(("normalize", "normalise", "normalizeadvantages", "norm", "std"), _SCALE),
        "scalerewards": _said(Way("--scale", why=": group (True), batch, or none (False)", lead="TRL's scale_rewards is")),
        "normadvbystdingrpo": _said(Way("--scale", why=": group (True) or none (False)", lead="verl's norm_adv_by_std_in_grpo is")),
        **dict.fromkeys(("numgenerations", "nsamplesperprompt", "samplesperprompt", "numsamples", "rolloutn", "n"), _SIZE),
        **dict.fromkeys(("planby", "plan", "plans"), _ONE_VALUE),
        **dict.fromkeys(("groupby", "groupcol", "groupcolumn", "groupkey", "promptcol", "promptcolumn", "promptid"), _KEY),
        **dict.fromkeys(("rewardcol", "rewardcolumn", "rewardkey", "scorecol", "scorecolumn"), _REWARD),
        **dict.fromkeys(("vs", "versus", "before", "baserun"), _said(Way("--against", why="takes the earlier run", fill="INPUT"))),
        **dict.fromkeys(("solverate", "passrate"), _RATE),
        **dict.fromkeys(("overwrite", "clobber", "y", "yes"), _OVER),
        **dict.fromkeys(("verbose", "v"), _MORE),
    },
}  # fmt: skip


def meant(option: str, name: str) -> tuple[Cure, ...]:
    """What to do about an unknown value of an option; empty if it is no name that people try."""
    meaning = MEANT.get(option, {}).get(_plain(name))
    return () if meaning is None else meaning.cures


def unknown_option(kind: str, name: str, known: Iterable[str], lost: Cure = "") -> UnknownName:
    """The error for an unknown option: what it means here, else known options with a near name, else `lost`.

    A meaning that names other options is left out.
    """
    names = list(known)
    flags = {other.removeprefix("--").replace("_", "-") for other in names}
    meaning = MEANT[""].get(_plain(name))
    if meaning is not None and meaning.options <= flags:
        # Of several ways the command has some: --full is of inspect.
        cures = [cure for cure in meaning.cures if isinstance(cure, str) or cure.flag.removeprefix("--") in flags]
        if cures:
            return UnknownName.of(kind, name, cures)
    return UnknownName.among(kind, name, names, lost=lost)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9+]", "", name.lower())
