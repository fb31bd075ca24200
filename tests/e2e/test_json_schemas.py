"""Every `--json` is what its published schema says, over many inputs."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

import grpo_cli
from grpo_cli.cli import output
from grpo_cli.engine.plan import Plan
from grpo_cli.engine.presets import presets
from grpo_cli.options.commands import COMMANDS
from grpo_cli.schemas.table import schemas as known_schemas
from grpo_cli.stats.document import plain_data
from tests.e2e.test_snapshots import CASES
from tests.support.command import adv, ran
from tests.support.drawn import some
from tests.support.goldens import HERE, runs
from tests.support.jobs import rows_of, samples_in, write
from tests.support.json_schemas import DOCUMENTS, schemas
from tests.support.schema_files import WRITERS

PUBLISHED = schemas()
SHOWN = [
    line
    for name, line in CASES.items()
    if "json" in COMMANDS[line.split()[0]].options and name not in {"compute-merge", "compute-unknown"}
]
MORE = [
    "compute rewards.jsonl -o out.jsonl --fail-on 'groups > 1'",
    "compute chats.jsonl -o - --map pass=1,fail=0 --min-group-size 4 --singleton nan",
    "compute tokens.jsonl -o out.jsonl --per-token --tokens ids --facts --missing exclude",
    "compute rewards.jsonl -o out.jsonl --preset verl-grpo --epsilon 0.1 --whiten sample --clip=-1:",
    "compute rewards.jsonl -o out.jsonl --config options.toml",
    "compute tokens.jsonl -o out.jsonl --missing zero --truncated-column cut --set shape.truncated.factor=0.5",
    "compute rewards.jsonl -o out.jsonl --overlong 40:20:0.5 --length-column length",
    "compute rewards.jsonl -o folder/ --reward-clip 0:1 --kl-coef 0.1 --kl-column length",
    "compute tokens.jsonl -o out.jsonl --missing propagate",
    "compute rewards.jsonl -o out.jsonl --presets ours.toml --preset ours",
    "inspect steps.jsonl -g prompt_id,step --duplicates --text-column prompt_id --by step --show '#1'",
    "inspect rewards.jsonl --where 'mean == 1' --config options.toml",
    "compute parts.jsonl --plan-by env --plan default: --plan b:method=rloo -o out.jsonl --per-token --tokens ids --config options.toml",
    "compute parts.jsonl --plan-by env --plan default:preset=trl-grpo -o folder/ --fail-on 'rows > 8'",
    "compute parts.jsonl --plan-by env --plan default: --only --explain",
    "inspect steps.jsonl -g prompt_id,step --where 'mean < 0.5' --sort length --top 0 --by prompt_id",
    "inspect two_rewards.jsonl -r accuracy -r format --length-column sample --combine normalize",
    "inspect rewards.jsonl --pass-at 1,2", "inspect cut_off.jsonl", "inspect tokens.jsonl", "inspect tokens.jsonl --token-logprobs s --old-token-logprobs o --token-entropy e --by n",
    "inspect now.jsonl --against before.jsonl", "inspect later.jsonl --against before.jsonl", "inspect now.jsonl --against before.jsonl --cluster prompt_id",
    "inspect now.jsonl --against base=before.jsonl --against before.jsonl --pass-at 1 --config options.toml",
    "inspect graded.jsonl --rescored others.jsonl --rollout sample --config options.toml",
    "inspect steps.jsonl -g prompt_id,step --rescored steps.jsonl --rollout sample --config options.toml",
    "inspect two_rewards.jsonl -r accuracy -r format --rescored-column accuracy",
    "add scored.parquet --from rewards.jsonl --on prompt_id --column reward=other --take first -o out.parquet",
    "add rewards.jsonl --from scored.parquet --column advantage=other -o out.jsonl --config options.toml",
    "select rewards.jsonl --top 3 --by=-mean -o out.jsonl --config options.toml",
    "select rewards.jsonl --where 'std > 0' --control --holdout 0.2 -o out.jsonl",
    "select now.jsonl --against before.jsonl --where 'solved_runs <= runs' -o out.jsonl",
    "select rewards.jsonl --group-size 4 --partial drop --limit 3 --seed 1 -o -",
    "export chats.jsonl --to weights -o out.jsonl --where 'std > 0'", "export chats.jsonl --to labels -o out.jsonl",
    "export chats.jsonl --to pairs --target trl -o out.jsonl", "export chats.jsonl --to groups -m rloo -o out.jsonl",
    "export chats.jsonl --to pairs --pairs all --max-pairs 1 -o out.jsonl --config options.toml",
    "export tokens.jsonl --to tokens --tokens ids -o out.jsonl",
    "export rewards.jsonl --to prompts --prompt prompt_id --solved-at 0.5 -o out.jsonl",
    "audit shifted.jsonl --preset trl-grpo --config options.toml", "audit tokens.jsonl --column reward -g prompt_id",
    "compare rewards.jsonl --method rloo --method grpo --write -o out.jsonl",
    "compare graded.jsonl --method rloo --preset verl-grpo --config options.toml",
    "inspect rewards.jsonl --masked-column prompt_id=hex-255", "inspect tokens.jsonl --left-out-column cut --missing exclude",
    "inspect environments.jsonl",
    "verify scored.parquet --against rewards.parquet", "methods", "presets", "presets trl", "schemas", "targets", "targets trl",
]  # fmt: skip


def test_every_command_with_json_has_a_schema() -> None:
    assert {*DOCUMENTS} == {row.name for row in COMMANDS.values() if "json" in row.options}


def test_every_key_has_a_sentence() -> None:
    for text in PUBLISHED.values():
        for name, kind in json.loads(text)["$defs"].items():
            assert [key for key, one in kind["properties"].items() if not one["description"]] == [], name


@cache
def validator(name: str) -> Any:
    schema = json.loads(PUBLISHED[name])
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def schema_of(line: str) -> str:
    """The name of the schema that the document of a command has."""
    name, *words = shlex.split(line)
    if name == "inspect" and "--against" in words:
        return "inspect-runs"
    if "--plan-by" in words:
        return f"{name}-parts"
    if name == "inspect" and {"--rescored", "--rescored-column"} & {*words}:
        return "inspect-rescored"
    if name in {"methods", "presets", "schemas", "targets"} and words:
        if name == "schemas" and words[0] not in known_schemas():
            return f"{name}-file"
        return f"{name}-one" if name != "presets" or words[0] in presets() else name
    return name


def of_numpy(value: Any, path: str = "") -> Iterator[str]:
    """Where a value has a number or an array of numpy's: what leaves an array is a Python number."""
    if type(value).__module__.partition(".")[0] == "numpy":
        yield f"{path}: {value!r}"
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from of_numpy(key, f"{path} key")
            yield from of_numpy(inner, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from of_numpy(inner, f"{path}[]")
    elif is_dataclass(value):
        for one in fields(value):
            yield from of_numpy(getattr(value, one.name), f"{path}.{one.name}")


def printed(line: str, folder: Path) -> Any:
    """The document of a command, on standard error where data went to standard output; None where it stops."""
    done = adv(f"{line} --json", cwd=folder)
    if done.status not in {0, 3}:
        return None
    text = done.err[done.err.index("{") :] if "-o -" in line else done.out
    return json.JSONDecoder().raw_decode(text or done.err)[0]


def errors(name: str, document: Any) -> list[str]:
    return [f"{error.json_path}: {error.message[:200]}" for error in validator(name).iter_errors(document)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample data, their results, and files with what they lack."""
    place = tmp_path_factory.mktemp("documents")
    samples_in(place)
    for name in ("jsonl", "parquet"):
        ran(f"compute rewards.{name} --quiet -o scored.{name}", cwd=place)
    scored = enumerate(rows_of(place / "scored.jsonl"))
    write(place / "shifted.jsonl", [row | {"advantage": row["advantage"] + (k % 5 == 0)} for k, row in scored])
    tokens = [
        {"prompt_id": k // 4, "reward": 1 - k % 2, "ids": [1, 2], "cut": k % 3 == 0, "n": k // 4, "s": [-1], "o": [-2], "e": [0.5]}
        for k in range(16)
    ]  # fmt: skip
    of_steps = [{"prompt_id": k, "step": k // 2, "env": "ab"[k % 2], "reward": k % 3 / 2} for k in range(8)]
    write(place / "environments.jsonl", [row for row in of_steps for _ in range(2)])
    write(place / "cut_off.jsonl", [{"prompt_id": "a", "reward": k % 2, "truncated": k > 2} for k in range(4)])
    write(place / "tokens.jsonl", [*tokens, {**tokens[0], "reward": None}])
    parts = [
        {"prompt_id": k // 4, "env": "ab"[k // 8], "reward": k % 3, "ids": [k], "logged": k % 5, "s": [-1], "o": [-1]}
        for k in range(16)
    ]
    write(place / "parts.jsonl", parts)
    # Of ten prompts each that were never solved, always solved and between, some change; and graded rewards.
    write(place / "before.jsonl", [{"prompt_id": k // 8, "reward": float(k // 8 % 3 > k % 2)} for k in range(240)])
    write(place / "now.jsonl", [{"prompt_id": k // 8, "reward": float(k // 8 % 2)} for k in range(8, 248)])
    write(
        place / "later.jsonl",
        [{"prompt_id": k // 8, "reward": float(k // 8 % 3 > k % 2 or k % 4 == 0)} for k in range(240)],
    )
    for name, prime in (("graded", 997), ("others", 991)):
        write(
            place / f"{name}.jsonl",
            [{"prompt_id": k // 8, "sample": k % 8, "reward": k * k % prime / prime} for k in range(1200)],
        )
    (place / "options.toml").write_text('group = "prompt_id"\n', encoding="utf-8")
    (place / "ours.toml").write_text('[ours]\ninherits = "trl-grpo"\nframework = "Ours"\n', encoding="utf-8")
    return place


class Shown(NamedTuple):
    """What the commands print, and where the facts behind each have numbers of numpy's; both by the line."""

    documents: dict[str, Any]
    of_numpy: dict[str, list[str]]


@pytest.fixture(scope="module")
def shown(folder: Path) -> Shown:
    found = Shown({}, {})

    def recorded(facts: Any) -> Any:
        found.of_numpy[line] = [*of_numpy(facts)]
        return plain_data(facts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "plain_data", recorded)
        for number, line in enumerate((*SHOWN, *MORE)):
            found.documents[line] = printed(line.replace("-o out", f"-o out{number}"), folder)
    return found


@pytest.fixture(scope="module")
def documents(shown: Shown) -> dict[str, Any]:
    """What each command prints."""
    return shown.documents


def test_no_number_of_numpy_leaves_an_array(shown: Shown) -> None:
    """JSON would hide some of them: a float is written as one, and an integer as a text."""
    assert len(shown.of_numpy) > len(shown.documents) / 2
    assert {line: places for line, places in shown.of_numpy.items() if places} == {}


def test_no_number_of_numpy_is_in_what_python_returns(folder: Path) -> None:
    chats, now, before = (str(folder / f"{name}.jsonl") for name in ("chats", "now", "before"))
    draws = "1,4"
    look = grpo_cli.inspect(now, against={"before": before}, pass_at=draws)
    two = grpo_cli.inspect(now, rescored_column="reward", reward="prompt_id").facts
    results = {
        "inspect": look.facts, "against": look.runs, "verdicts": look.verdicts, "rescored": two,
        "select": grpo_cli.select(now, limit=2, control=True).facts,
        "export": grpo_cli.export(chats, to="pairs", map="pass=1,fail=0").facts,
        "audit": grpo_cli.audit(str(folder / "scored.jsonl")),
        "compare": grpo_cli.compare(now, {"grpo": Plan(), "rloo": Plan.of({"estimator.name": "rloo"})}).facts,
        "plan": grpo_cli.compute(now).plan,
    }  # fmt: skip
    assert [*of_numpy(results)] == []


def test_what_commands_print_is_valid(documents: dict[str, Any]) -> None:
    for line, document in documents.items():
        assert document is not None, line
        assert errors(schema_of(line), document) == [], line


def condition(document: dict[str, Any], before: str = "", without: Collection[str] = ()) -> str:
    """That each number of a document is what it is, and each list as long as it is."""
    return " and ".join(f"`{path}` {said}" for path, said in equalities(document, before) if path not in without)


def equalities(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from equalities(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        yield path, f"== {len(value)}"
    elif isinstance(value, (int, float)):
        yield path, f"== {value!r}"


@pytest.mark.parametrize("line", [line for line in (*SHOWN, *MORE) if "fail_on" in COMMANDS[line.split()[0]].options])
def test_every_number_of_every_document_can_be_gated(line: str, documents: dict[str, Any], folder: Path) -> None:
    """A run is stopped by the condition that each number is what it was in an earlier run, and writes nothing."""
    document = documents[line]
    kind = schema_of(line)
    if kind == "inspect-runs":
        base, newest = document["runs"][0], document["runs"][-1]
        of_both = newest | document["differences"][-1] | document
        wanted = [condition(of_both), condition(base, "base"), condition(newest, "newest")]
    elif kind == "compute-parts":
        part = document["parts"][0]
        warnings = [*part["warnings"], *document["warnings"]]
        wanted = [condition(part | {"warnings": warnings}), f"parts == {len(document['parts'])}"]
    else:
        late = {"seconds"}
        if "--fail-on" in line:
            late.add("outputs")  # none was written
        if "re-encoded" in str(document.get("warnings")):
            late.add("warnings")  # which writing adds
        wanted = [condition(document, without=late)]
    line = re.sub(" --fail-on '[^']+'", "", line).replace("-o out", "-o new").replace("-o folder/", "-o new/")
    for each in wanted:
        done = adv(f"{line} -q", "--fail-on", each, cwd=folder)
        assert done.status == 3, done.err
        assert not [*folder.glob("new*")]


def test_a_document_with_a_key_less_or_more_is_not_valid(documents: dict[str, Any]) -> None:
    for line, document in documents.items():
        one = document[0] if isinstance(document, list) else document
        changed = [{**one, "more": 1}, {key: value for key, value in one.items() if key != next(iter(one))}]
        for wrong in changed:
            assert errors(schema_of(line), [wrong] if isinstance(document, list) else wrong), line


def test_every_key_of_a_schema_occurs_in_a_document(documents: dict[str, Any]) -> None:
    known = set[tuple[str, str]]()
    seen = set[tuple[str, str]]()
    for line, document in documents.items():
        schema = json.loads(PUBLISHED[schema_of(line)])
        known |= {(name, key) for name, kind in schema["$defs"].items() for key in kind["properties"]}
        seen |= keys_in(schema, document, schema["$defs"])
    assert known - seen == {("Plan", "package")}  # tests/e2e/test_plugins.py has that of a package


def keys_in(schema: Any, value: Any, named: Any) -> set[tuple[str, str]]:
    """The keys of a document, each with the name of the object that has it."""
    for one in schema.get("anyOf", ()):
        if Draft202012Validator({**one, "$defs": named}).is_valid(value):
            return keys_in(one, value, named)
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        inner = [(named[name]["properties"].get(key, {}), item) for key, item in value.items()]
        return {(name, key) for key in value}.union(*(keys_in(one, item, named) for one, item in inner))
    if isinstance(value, list):
        return set().union(*(keys_in(schema.get("items", {}), item, named) for item in value))
    if isinstance(value, dict):
        return set().union(*(keys_in(schema.get("additionalProperties", {}), item, named) for item in value.values()))
    return set()


@pytest.mark.parametrize("name", some(WRITERS, 12))
def test_documents_of_every_layout_are_valid(name: str) -> None:
    written = WRITERS[name](Path())
    file = shlex.quote(str(written.path))
    rest = file
    for key, value in written.flags.items():
        if key != "column":
            for one in value if isinstance(value, list) else [value]:
                rest += f" --{key.replace('_', '-')}={shlex.quote(str(one))}"
    for at, line in enumerate((
        f"inspect {rest} --show '#1'", f"inspect {rest} --against {file}", f"compute {rest} --column mine --explain --missing exclude",
        f"select {rest} --limit 1 -o out/", f"export {rest} --to sft -o out1.jsonl", f"export {rest} --to prompts -o out2.jsonl",
        f"audit {rest}", f"compare {rest} --method rloo --method grpo --missing exclude", f"schemas {file}",
    )):  # fmt: skip
        document = printed(line, Path())
        assert document is not None or at, line  # a file may have no advantages, no texts, or one reward only
        assert document is None or errors(schema_of(line), document) == [], line


def test_the_plans_of_all_frameworks_are_valid() -> None:
    first = {run.case: run for run in reversed([*runs()])}
    assert len(first) > 100
    for run in some(first.values(), 20):
        words = shlex.join([f"tables/{run.dataset}.parquet", *run.args])
        document = printed(f"compute {words} --explain", HERE)
        assert document is not None, run
        assert errors("compute", document) == [], run
