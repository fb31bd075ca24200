"""Some logs of the corpus, of kinds that no test of the audit has; the nightly run takes all of them."""

from __future__ import annotations

import pytest

from tests.reference.audit_corpus import LOGS, verdict

SOME = {("unknown", "three decimals"), ("rounded", "bfloat16"), ("own epsilon", "float32")}
FIRST = {(log.kind.partition(":")[0], log.logger): at for at, log in reversed([*enumerate(LOGS)])}


@pytest.mark.parametrize("kind", sorted(SOME), ids=" ".join)
def test_a_log_is_named_or_left_unnamed(kind: tuple[str, str]) -> None:
    at = FIRST[kind]
    assert verdict(at) == ("named" if LOGS[at].names else "none")
