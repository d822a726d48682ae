# Two commands on a fresh machine: `make demo` runs the demo benchmark, `make test` passes all tests.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
BIN = $(VENV)/bin

# Hundreds of tests start Python: without bytecode each would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-agents test-attacks test-faults wheel-test lint bench docs site clean

demo: $(VENV)/.demo
	$(BIN)/pytest tasks --bf-sandbox local

test: lint
	$(BIN)/pytest tests -n $(JOBS) --dist loadfile --no-loadscope-reorder

# Real agents, the large ones too, each in every sandbox: gigabytes to install, minutes to run.
test-agents: $(VENV)/.test
	$(BIN)/bf agents install gemini claude-agent-acp codex-acp opencode pi-acp openhands openclaw
	BF_REQUIRE_AGENTS=1 $(BIN)/pytest tests/real_agents
	BF_REQUIRE_AGENTS=1 BF_TEST_AGENTS=openhands,openclaw $(BIN)/pytest tests/real_agents

# The long part of the fault suite: hundreds of kills at random moments, a flood of a gigabyte.
test-faults: $(VENV)/.test
	BF_FAULT_LONG=1 BF_FAULT_SEEDS=0:240 BF_FAULT_DOCKER_SEEDS=0:30 BF_FAULT_FLOOD_MB=1000 BF_FAULT_TINY=2000 \
		$(BIN)/pytest tests/faults -n $(JOBS)

# Every attack as every user in both sandboxes, and the same without hardening: half an hour.
test-attacks: $(VENV)/.test
	BF_ATTACKS=all $(BIN)/pytest tests/attacks -n $(JOBS) --dist loadfile

# What users install: the wheel, in fresh environments, with every Python that is here.
wheel-test: $(VENV)/.demo
	JOBS=$(JOBS) $(BIN)/python .ci/wheel.py

lint: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.test
	$(BIN)/python benchmarks/run.py

# The table of options and the JSON Schemas, after a change of settings, results or reports.
docs: $(VENV)/.test
	$(BIN)/python docs/generate.py

# The pages of docs/ with navigation and search, in build/site.
site: $(VENV)/.test
	$(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache build dist

# Made once: to make it again over itself would only install pip again.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@ $(VENV)/.demo
