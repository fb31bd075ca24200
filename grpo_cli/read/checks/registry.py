"""All checks, in their order: the first error wins. What each looks at and when it runs, it says itself."""

from __future__ import annotations

from typing import Final

from grpo_cli.read.checks import files, keys, merges, rollouts, sizes, values
from grpo_cli.read.checks.check import Check

CHECKS: Final[tuple[Check, ...]] = (
    # The key: is it the right column, and does every row have one?
    keys.ids_beside_a_text,
    keys.missing_keys,
    keys.one_record,
    keys.empty_keys,
    keys.answers_in_key,
    # Groups that merge several, or parts of one rollout.
    merges.silent_merge,
    sizes.size_of_blocks,
    sizes.last_blocks,
    rollouts.unnamed_rollouts,
    merges.several_prompts,
    # Batches.
    merges.unclear_batch,
    merges.divided_groups,
    # Rollouts of several rows.
    rollouts.unequal_siblings,
    rollouts.rows_counted,
    rollouts.lone_rollouts,
    rollouts.turns_in_order,
    # Sizes.
    sizes.other_sizes,
    sizes.only_singletons,
    # Values of rows.
    values.huge_rewards,
    values.unusable_values,
    values.no_rewards_at_the_end,
    values.repeated_samples,
    # Files, and what only warns.
    files.broken_lines,
    files.empty_records,
    merges.several_draws,
    values.missing_components,
    sizes.nothing_left,
    files.unused_outcomes,
    files.useless_marks,
    files.unread_marks,
    files.marks_that_leave_single_rows,
)
# Of --plan-by: of all rows together, of each part, and of each part where all parts must fail.
CHECKS_OF_INPUT: Final = tuple(one for one in CHECKS if one.once_per == "input")
CHECKS_OF_PART: Final = tuple(one for one in CHECKS if one.once_per == "part")
CHECKS_OF_ALL_PARTS: Final = tuple(one for one in CHECKS if one.once_per == "all parts")
CHECKS_OF_STREAM: Final = tuple(one for one in CHECKS if not one.needs_whole_input)
