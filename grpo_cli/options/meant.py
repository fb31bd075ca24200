"""Hints for names we do not have: algorithms and options of other tools, a sentence each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from grpo_cli.errors import UnknownName

_DPO: Final = "preference pairs are --to pairs"
_CRITIC: Final = "its advantage needs the values of a critic, which reward files do not have; grpo and rloo need none"
_RATIO: Final = "it changes the ratio in the loss and keeps the advantage of grpo: --method grpo"
_PAIRS: Final = "it learns from pairs and has no advantage: grpo-adv export --to pairs"
_BEST: Final = "it trains on the best rows and has no advantage: grpo-adv export --to sft"
_ZSCORE: Final = "--method grpo divides by the std of the group; --whiten sample standardises all advantages"
_DR_GRPO: Final = "Dr. GRPO is --method dr-grpo"
_SCALE: Final = (
    "to divide by a standard deviation, --scale group or --scale batch; --whiten sample standardises all advantages"
)
_SIZE: Final = "--group COL where a column names the prompt, else --group-size N"
_CLIP: Final = "the clip of the ratio belongs to the loss; --clip LO:HI clips the advantages"
_ARGUMENT: Final = "the input has no flag: grpo-adv COMMAND FILE"

# An option, or "" for the names of the options themselves; a name as `_plain` writes it; what it means here.
MEANT: Final[Mapping[str, Mapping[str, str]]] = {
    "method": {
        "dapo": "DAPO has the advantage of grpo: --method grpo; its dynamic sampling is --zero-variance drop, its length penalty compute --overlong",
        **dict.fromkeys(("gspo", "gspotoken", "cispo", "gmpo", "sapo"), _RATIO),
        **dict.fromkeys(("ppo", "gae", "vapo", "vcppo", "a2c", "a3c"), _CRITIC),
        **dict.fromkeys(("dpo", "ipo", "kto", "orpo", "simpo"), _PAIRS),
        **dict.fromkeys(("raft", "rft", "bon", "bestofn", "rejectionsampling"), _BEST),
        **dict.fromkeys(("normalize", "normalise", "zscore", "standardize", "groupnorm"), _ZSCORE),
        **dict.fromkeys(("drgrpo", "grpodonright", "grponostd"), _DR_GRPO),
        **dict.fromkeys(("loo", "leaveoneout"), "leave-one-out is --method rloo"),
        **dict.fromkeys(("rpp", "reinforceplusplus", "reinforcepp"), "REINFORCE++ is --method reinforce++"),
    },
    "scale": {
        "true": "TRL's True is --scale group",
        "false": "TRL's False is --scale none",
        "std": "--scale group divides by the std of the group, --scale batch by that of the batch",
    },
    "to": {
        **dict.fromkeys(("dpo", "ipo", "orpo", "simpo", "preference", "preferences", "rm"), _DPO),
        **dict.fromkeys(("raft", "rft", "bon", "bestofn", "rejectionsampling"), "the best rows are --to sft"),
        **dict.fromkeys(("awr", "rwr", "weighted"), "rows with a weight are --to weights"),
    },
    "": {
        **dict.fromkeys(("eps", "divisoreps"), "the epsilon of the divisor is --epsilon"),
        **dict.fromkeys(("normalize", "normalise", "normalizeadvantages", "norm", "std"), _SCALE),
        "scalerewards": "TRL's scale_rewards is --scale: group (True), batch, or none (False)",
        "normadvbystdingrpo": "verl's norm_adv_by_std_in_grpo is --scale: group (True) or none (False)",
        **dict.fromkeys(("numgenerations", "nsamplesperprompt", "samplesperprompt", "numsamples", "rolloutn", "n"), _SIZE),
        **dict.fromkeys(("advestimator", "advantageestimator", "estimator", "algorithm", "algo"), "--method NAME; a framework's own arithmetic is --preset NAME"),
        **{name: f"{name} is a method: --method {name}" for name in ("grpo", "rloo", "reinforce", "reinforce++", "remax", "opo")},
        **dict.fromkeys(("losstype", "drgrpo"), f"the loss is the trainer's; {_DR_GRPO}"),
        **dict.fromkeys(("epsilonlow", "epsilonhigh", "cliphigh", "cliprange", "clipratio", "cliplow"), _CLIP),
        **dict.fromkeys(("gamma", "discount"), "--param gamma=X, for methods that discount (grpo-adv methods)"),
        **dict.fromkeys(("klbeta", "initklcoef"), "--kl-coef X, with --kl-column COL"),
        **dict.fromkeys(("dynamicsampling", "filtergroups", "filterzerostd"), "--zero-variance drop leaves out groups without a gradient"),
        **dict.fromkeys(("groupby", "groupkey", "groupcolumn", "groupcol", "promptid", "promptkey", "key", "uid"), "--group COL names the group key"),
        **dict.fromkeys(("rewardcolumn", "rewardcol", "rewardkey", "score", "scorecolumn"), "--reward COL names the reward"),
        **dict.fromkeys(("advantagecolumn", "columnname", "advkey"), "--column NAME names the advantage"),
        **dict.fromkeys(("filter", "condition"), "--where CONDITION keeps the groups that meet it"),
        **dict.fromkeys(("input", "in", "infile", "file", "data"), _ARGUMENT),
        **dict.fromkeys(("outdir", "outputdir", "outfile", "outputfile"), "--output takes a file or a directory: -o FILE, -o DIR/"),
        **dict.fromkeys(("overwrite", "yes"), "--force overwrites an existing output"),
        **dict.fromkeys(("dryrun", "whatif"), "--explain shows what would be computed, and writes nothing"),
        "verbose": "--debug shows which data took the slow reader and why",
    },
}  # fmt: skip


def meant(option: str, name: str) -> str:
    """The hint for an unknown value of an option; empty if there is none."""
    return MEANT.get(option, {}).get(_plain(name), "")


def unknown_option(kind: str, name: str, known: Iterable[str], lost: str = "") -> UnknownName:
    """The error for an unknown option: its hint, else known options with a near name, else `lost`.

    A hint that names other options is left out.
    """
    names, sentence = list(known), meant("", name)
    flags = {*re.findall(r"--([a-z-]*[a-z])", sentence)}
    if sentence and flags <= {other.removeprefix("--").replace("_", "-") for other in names}:
        return UnknownName(f"no {kind} named {name!r}", sentence)
    return UnknownName.among(kind, name, names, lost=lost)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9+]", "", name.lower())
