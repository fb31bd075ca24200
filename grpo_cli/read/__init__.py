"""From files or frames to the narrow table: rows that know their group, the only table that stays in memory.

find_inputs(names)             -> inputs    the files to read, pinned                                    open_tables
open_tables(inputs, flags)     -> tables    each with its format and its schema; a sample has been read  open_tables, recognise
layout(tables, flags)          -> Layout    what the columns are: key, rewards, marks, and why           layout
choose(layout, plan)           -> Request   which columns the plan and the checks read, and the rule of groups    request, wanted, for_checks
read_columns(request)          -> Columns   those columns, each read once                                columns
group(columns, rule)           -> Groups    the group and the batch of every row                         groups, group_keys
check(groups, CHECKS)          -> warnings  errors stop the run here; each check is a function           checks/
Narrow.of(groups, warnings)    -> Narrow    the table that the engine computes from                      narrow

`build_table.read` does the last five. A step returns its results and never changes its arguments.

How a column is chosen (`layout`): by a flag, else by the schema of the files, else by a well-known name
(`known_names`); if nothing fits, it suggests flags. `tables` computes the columns that a schema derives.
How a row gets its group: rows with equal keys are a group, cut further by `within` or into blocks; `with_rollouts` finds rows
that are parts of one rollout. Which checks exist: `checks/registry` lists them all, in their order; they stand in `checks/` by
subject, and each says which rows it looks at and in which runs. Those that need more code than a function live in `prompt_check`
(does a group hold several prompts?) and `repeated_draws` (was a prompt sampled several times?). `texts` fetches texts later, and
`pairs` matches the rows of two inputs.

A row is a line of the input, a rollout a sampled trajectory (a row, or several with the same `rollout` id), a group the
rollouts of one draw of one prompt. To add a check, write a function of `Groups` in `checks/` and add it to `CHECKS`.
"""
