"""Records as lines and as columns."""

from __future__ import annotations

import polars as pl

from grpo_cli.write.records import tools_as_text


def test_lists_of_tools_become_texts_that_hold_their_json_and_texts_stay() -> None:
    text = '"[{\\"name\\": \\"add\\"}]"'
    tools = pl.Series("tools", ['[{"name": "é"}]', text, None, '[{"name": "é"}]'])
    as_text = '"[{\\"name\\": \\"é\\"}]"'
    assert tools_as_text(tools).to_list() == [as_text, text, None, as_text]
