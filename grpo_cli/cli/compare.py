"""`grpo-adv compare`: several plans on the same rows."""

from __future__ import annotations

from typing import Any

from grpo_cli.cli.output import show
from grpo_cli.errors import UsageError
from grpo_cli.options.resolve import binding_fields, counting, output_fields, own_options, plan_of
from grpo_cli.options.table import OF_PART, OPTIONS, OUTPUT
from grpo_cli.schemas.table import items


def compare(given: dict[str, Any]) -> None:
    """Compute the plans, show where they differ, and write their columns with --write."""
    from grpo_cli.read.tables import Binding
    from grpo_cli.runs.compare import Job, run
    from grpo_cli.write.outputs import Output

    options = _options(given)
    plans = {text: plan_of(own) for text, own in options.items()}
    for name in () if given.get("write") else given:
        if name in OPTIONS and OPTIONS[name].panel == OUTPUT:
            raise UsageError(f"{OPTIONS[name].flag} is about an output file, and none is written", "add --write")
    job = Job(
        inputs=given["inputs"],
        plans=plans,
        rollouts={text: counting(own) for text, own in options.items()},
        rewards={text: binding_fields(own)["rewards"] for text, own in options.items()} if "vs_reward" in given else {},
        binding=Binding(**binding_fields(given)),
        output=Output(**output_fields(given)) if given.get("write") else None,
    )
    show(given, run(job), "compare.render")


def _options(given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The options of each plan, by the text given to --preset or --method."""
    common = {name: value for name, value in given.items() if name in OPTIONS}
    known = {*OF_PART} - {"reward", "rollout_reward"}  # all plans read the same columns
    presets = [("preset", text) for text in given.get("compared_presets", ())]
    methods = [("method", text) for text in given.get("contenders", ())]
    plans: dict[str, dict[str, Any]] = {}
    for kind, text in (*presets, *methods):
        name, *options = items(text)
        if text in plans:
            raise UsageError(f"{text!r} is named twice", "append options to tell them apart: grpo,scale=batch")
        plans[text] = {**common, **own_options(options, known - {kind}), kind: name}
    return _by_reward(given, plans, common) if "vs_reward" in given else plans


def _by_reward(
    given: dict[str, Any], plans: dict[str, dict[str, Any]], common: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """The options of the one plan with each reward, by the names of the rewards."""
    if "reward" not in given:
        raise UsageError("--vs-reward is compared with another reward", "name that with --reward")
    if len(plans) > 1:
        wrong = "--vs-reward compares rewards of one plan, and several plans are named"
        raise UsageError(wrong, "name one of them, or leave out --vs-reward")
    (own,) = plans.values() or [common]
    rewards = {"+".join(given["reward"]): given["reward"], **{text: [text] for text in given["vs_reward"]}}
    if len(rewards) <= len(given["vs_reward"]):
        raise UsageError("a reward is named twice", "give --reward and --vs-reward different columns")
    return {name: {**own, "reward": columns} for name, columns in rewards.items()}
