"""Hints for names we do not have: algorithms and options of other tools, a sentence each."""

from __future__ import annotations

import re
from collections.abc import Iterable

from grpo_cli.errors import UnknownName

_DPO = "preference pairs are --to pairs"
_CRITIC = "its advantage needs the values of a critic, which reward files do not have; grpo and rloo need none"
_RATIO = "it changes the ratio in the loss and keeps the advantage of grpo: --method grpo"
_SCALE = (
    "to divide by a standard deviation, --scale group or --scale batch; --whiten sample standardises all advantages"
)
_ONE_VALUE = "one value at a time: --rows \"COLUMN == 'VALUE'\""
_SIZE = "--group COL where a column names the prompt, else --group-size N"

# An option, or "" for the names of the options themselves; a name as `_plain` writes it; what it means here.
MEANT = {
    "method": {
        "dapo": "DAPO has the advantage of grpo: --method grpo; its dynamic sampling is --zero-variance drop, its length penalty compute --overlong",
        **dict.fromkeys(("gspo", "gspotoken", "cispo", "gmpo", "sapo"), _RATIO),
        **dict.fromkeys(("ppo", "gae", "vapo", "vcppo", "a2c", "a3c"), _CRITIC),
        **dict.fromkeys(("drgrpo", "grpodonright", "grponostd"), "Dr. GRPO is --method dr-grpo"),
    },
    "to": dict.fromkeys(("dpo", "ipo", "orpo", "simpo", "preference", "preferences", "rm"), _DPO),
    "": {
        **dict.fromkeys(("eps", "divisoreps"), "the epsilon of the divisor is --epsilon"),
        **dict.fromkeys(("normalize", "normalise", "normalizeadvantages", "norm", "std"), _SCALE),
        "scalerewards": "TRL's scale_rewards is --scale: group (True), batch, or none (False)",
        "normadvbystdingrpo": "verl's norm_adv_by_std_in_grpo is --scale: group (True) or none (False)",
        **dict.fromkeys(("numgenerations", "nsamplesperprompt", "samplesperprompt", "numsamples", "rolloutn", "n"), _SIZE),
        **dict.fromkeys(("planby", "plan", "plans"), _ONE_VALUE),
    },
}  # fmt: skip


def meant(option: str, name: str) -> str:
    """The hint for an unknown value of an option; empty if there is none."""
    return MEANT.get(option, {}).get(_plain(name), "")


def unknown_option(kind: str, name: str, known: Iterable[str], lost: str = "") -> UnknownName:
    """The error for an unknown option: its hint, else known options with a near name, else `lost`.

    A hint that names other options is left out.
    """
    names = list(known)
    sentence = meant("", name)
    flags = {other.removeprefix("--").replace("_", "-") for other in names}
    if sentence and flags.issuperset(re.findall(r"--([a-z-]*[a-z])", sentence)):
        return UnknownName(f"no {kind} named {name!r}", sentence)
    return UnknownName.among(kind, name, names, lost=lost)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9+]", "", name.lower())
