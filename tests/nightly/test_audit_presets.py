"""The numbers of every framework's own code lead an audit back to its preset; the everyday run takes one of each form."""

from __future__ import annotations

import pytest

from tests.unit.auditing.test_audit import golden_presets, leads_back


@pytest.mark.parametrize(("case", "preset"), golden_presets())
def test_the_numbers_of_every_framework_lead_back_to_its_preset(case: str, preset: str) -> None:
    leads_back(case, preset)
