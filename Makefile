# The commands people use; `python3 -m venv .venv && .venv/bin/pip install -e '.[dev,docs]'` once before.
# Another environment: make test BIN=/path/to/bin/
BIN ?= .venv/bin/

.PHONY: test lint types docs tokens bench nightly

test: ## what must pass before a commit
	$(BIN)pytest

lint: ## style; `ruff check --fix` and `ruff format` do most of the work
	$(BIN)ruff check .
	$(BIN)ruff format --check .

types:
	$(BIN)mypy

docs: ## make the generated tables and the types of keywords anew, then build the site into build/site
	$(BIN)python -m tests.support.documents
	$(BIN)python -m tests.support.keywords
	$(BIN)mkdocs build --strict

tokens: ## the size of the code, by room
	$(BIN)python -m benchmarks.tokens

bench: ## needs about 20 GB below build/ and most of an hour; see benchmarks/README.md
	mkdir -p build/bench
	$(BIN)python -m benchmarks.run --scratch build/bench

nightly: ## everything, with forty times the examples, fuzz, large files and all other readers; needs Java and a Chromium
	$(BIN)pip install -q -e '.[nightly]'
	$(BIN)pytest tests --nightly
