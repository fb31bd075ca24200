"""From files or frames to the narrow table: rows that know their group, the only table that stays in memory.

find_inputs(names)             -> inputs    the files to read, pinned                                    open_tables
open_tables(inputs, flags)     -> tables    each with its format and its schema; a sample has been read  open_tables, apply_schema
read_columns(tables, ...)      -> Columns   the columns that matter, each read once                      columns
  choose(tables, flags, plan)  -> Request   which columns those are, and the rule of groups              request
group(columns, rule)           -> Groups    the group and the batch of every row                         groups, group_keys
check(groups, CHECKS)          -> warnings  errors stop the run here; each check is a function           checks
Narrow.of(groups, warnings)    -> Narrow    the table that the engine computes from                      narrow

`build_table.read` does the last four. A step returns its results and never changes its arguments. In addition,
`prompt_check` and `repeated_draws` recognise groups that merge several, `derived_columns` has the columns that a schema
computes from others, `known_names` the names that columns are found by, `hints` what a message offers where none was
found; `excerpts` and `texts` fetch texts later.

A row is a line of the input, a rollout a sampled trajectory (a row, or several with the same `rollout` id), a group the
rollouts of one draw of one prompt. To add a check, write a function of `Groups` and add it to `CHECKS`.
"""
