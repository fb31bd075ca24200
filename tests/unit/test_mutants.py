"""Mutants: which changes are made, that a draw repeats, and what the tests of a copy say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mutants import ALIVE, KILLED, ROOT, Mutant, drawn, is_another, judged, mutants_of, room_tests

CHANGES = """
x = a < b                        | compare: a < b -> (a <= b)
x = a + b                        | arithmetic: a + b -> (a - b) | dropped term: a + b -> a
x = n[2]                         | off by one: 2 -> 3
x = a and b                      | and/or: a and b -> (a or b) | dropped clause: a and b -> a | dropped clause: a and b -> b
x = not a                        | dropped not: not a -> a
x = f(a, b)                      | swapped names: f(a, b) -> f(b, a)
x = [a for a in b if a]          | dropped clause: [a for a in b if a] -> [a for a in b]
x = "a" + b                      |
x: Literal[1] = a                |
raise DataError(1 + n)           |
x = DataError("a", 1)            |
"""


@pytest.mark.parametrize("case", CHANGES.strip().splitlines())
def test_a_line_has_these_mutants_and_no_texts_errors_and_annotations(case: str) -> None:
    source, *wanted = (part.strip() for part in case.split(" | ") if part.strip(" |"))
    source = source.removesuffix("|").strip()
    found = [mutant.words(source).partition(" ")[2] for mutant in mutants_of("m.py", source)]
    assert sorted(found) == sorted(wanted)
    assert all(is_another(mutant, source) for mutant in mutants_of("m.py", source))


def test_a_seed_draws_the_same_mutants_again() -> None:
    sources = {"a.py": "x = a + b * 2\n", "b.py": "y = not a\n"}
    assert drawn(sources, 3, 61) == drawn(sources, 5, 61)[:3]
    assert len({*drawn(sources, 99, 61)}) == len(drawn(sources, 99, 61)) == 5


def test_a_mutant_is_killed_by_a_test_that_fails_and_its_module_is_as_before(tmp_path: Path) -> None:
    (tmp_path / "grpo_cli").mkdir()
    (tmp_path / "grpo_cli" / "__init__.py").touch()
    module = tmp_path / "grpo_cli" / "m.py"
    source = "def more(n):\r\n    return n + 1\r\n"
    module.write_bytes(source.encode())
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    test = tmp_path / "test_m.py"
    test.write_text("from grpo_cli.m import more\ndef test_more():\n    assert more(1) == 2\n")
    mutant = Mutant("grpo_cli/m.py", 2, 11, 16, "arithmetic", "(n - 1)")
    assert judged(tmp_path, mutant, ["test_m.py"], 60) == (KILLED, "test_m.py::test_more")
    assert module.read_bytes() == source.encode()
    test.write_text("from grpo_cli.m import more\ndef test_more():\n    assert more(1) < 3\n")
    assert judged(tmp_path, mutant, ["test_m.py"], 60) == (ALIVE, "")


def test_each_room_with_mutants_has_tests_that_exist() -> None:
    table = room_tests((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert [*table] == ["engine", "read", "write", "stats", "choosing", "options", "formats", "runs", "guests/audit"]
    for room, tests in table.items():
        assert f"tests/unit/{room}" in tests
        assert all((ROOT / test).exists() for test in tests)
