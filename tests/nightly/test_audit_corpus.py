"""Of all logs of the corpus: no formula is named that did not make the numbers, and nearly all are named that did.

The verdicts are kept in a small file; the table in the documentation is generated from it.
"""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.reference.audit_corpus import LOGS, RECORDED, counted, odd_when_run, verdict


def test_no_match_is_wrong_library_formulas_are_named_and_the_table_of_verdicts_is_the_recorded_one() -> None:
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:  # a log takes some seconds
        verdicts = list(pool.map(verdict, range(len(LOGS)), chunksize=4))
    each = [*zip(verdicts, LOGS, strict=True)]
    odd = [
        (one, log.kind, log.rewards, log.logger) for one, log in each if one == "wrong" or (log.names and one == "none")
    ]
    assert "wrong" not in verdicts, odd
    library = [one for one, log in each if log.names]
    assert library.count("named") + library.count("tie") >= 0.97 * len(library), odd
    assert counted(verdicts) == json.loads(RECORDED.read_text(encoding="utf-8"))


def test_every_formula_that_is_said_to_fit_gives_its_log_if_it_is_run() -> None:
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        odd = [*pool.map(odd_when_run, range(len(LOGS)), chunksize=4)]
    assert [(LOGS[at].kind, LOGS[at].rewards, wrong) for at, wrong in enumerate(odd) if wrong] == []
