# Two commands: `make demo` and `make test`. Each builds .venv once and starts in seconds after that.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint bench autogluon clean

demo: $(STAMP)
	$(BIN)/crumb demo

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check src experiments pretraining tests benchmarks
	$(BIN)/ruff format --check src experiments pretraining tests benchmarks
	$(BIN)/mypy

# What needs neither a GPU nor the folder of real tables: half an hour on two cores, most of it for
# the full context.
RESULTS := benchmarks/results
bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[peers]'
	$(BIN)/python benchmarks/stage1.py --out $(RESULTS)/stage1.json
	$(BIN)/python benchmarks/stage2.py --out $(RESULTS)/stage2.json
	$(BIN)/python benchmarks/stage2.py --grow 100000 200000 400000 --out $(RESULTS)/stage2_growth.json
	$(BIN)/python benchmarks/stage3.py kept --out $(RESULTS)/kept_contexts.json
	$(BIN)/python benchmarks/stage3.py size --repeats 15 --out $(RESULTS)/pass_speed.json
	$(BIN)/python benchmarks/whole.py --rows 50000 --budgets 2s 8s 20s "10s 0.5GB" \
		--out $(RESULTS)/budget.json
	$(BIN)/python benchmarks/whole.py --out $(RESULTS)/whole.json
	$(BIN)/python benchmarks/plots.py

# AutoGluon wants an older pandas: an environment of its own, and the tests that need it.
OTHER := .venv-autogluon
autogluon:
	test -x $(OTHER)/bin/python || $(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[autogluon]' pytest
	$(OTHER)/bin/python -m pytest tests/integrations

# A venv that was interrupted half-way has no stamp, so the next run finishes it.
# torch goes first and alone: resolved together with the rest, pip may fetch a second, newer torch.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) $(OTHER) .pytest_cache .mypy_cache .ruff_cache .hypothesis
