# `make demo` and `make test`: each builds .venv once and starts in seconds after that.
# `make docs` builds the site, `make dist` the distributions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint docs dist bench autogluon clean

CODE := src experiments pretraining tests benchmarks examples docs packaging hatch_build.py

demo: $(STAMP)
	$(BIN)/crumb demo

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# The site, in docs/_build/html: every script of the gallery runs. Warnings are errors.
docs: $(STAMP)
	$(PIP) -e '.[docs]'
	$(BIN)/python -m sphinx -b html -W --keep-going -n -q docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# Wheel and sdist, checked and tested where nothing else is installed: ten minutes on two cores.
DIST_TESTS ?= tests
dist: $(STAMP)
	$(PIP) -e '.[release]'
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python packaging/try_dist.py dist $(DIST_TESTS)

# What needs neither a GPU nor the folder of real tables: half an hour on two cores, most of it for
# the full context.
RESULTS := benchmarks/results
bench: $(STAMP)
	$(PIP) -e '.[peers]'
	$(BIN)/python benchmarks/stage1.py --out $(RESULTS)/stage1.json
	$(BIN)/python benchmarks/stage2.py --out $(RESULTS)/stage2.json
	$(BIN)/python benchmarks/stage2.py --grow 100000 200000 400000 --out $(RESULTS)/stage2_growth.json
	$(BIN)/python benchmarks/stage3.py kept --out $(RESULTS)/kept_contexts.json
	$(BIN)/python benchmarks/stage3.py size --repeats 15 --out $(RESULTS)/pass_speed.json
	$(BIN)/python benchmarks/whole.py --rows 50000 --budgets 2s 8s 20s "10s 0.5GB" \
		--out $(RESULTS)/budget.json
	$(BIN)/python benchmarks/whole.py --out $(RESULTS)/whole.json
	$(BIN)/python benchmarks/plots.py

# AutoGluon and TabArena want an older pandas: an environment of their own, and the tests that need
# it. torch is named again, so that nothing brings another one.
OTHER := .venv-autogluon
autogluon:
	test -x $(OTHER)/bin/python || $(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check \
		torch==2.13.0 -e '.[autogluon,tabarena]' pytest
	$(OTHER)/bin/python -m pytest tests/integrations

# A venv that was interrupted half-way has no stamp, so the next run finishes it.
# torch goes first and alone: resolved together with the rest, pip may fetch a second, newer torch.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) $(OTHER) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist docs/_build docs/gallery docs/reference/generated
