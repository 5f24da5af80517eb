# Every target sets itself up in .venv on a fresh machine; only Python >= 3.11 is needed.
PYTHON ?= python3
VENV := .venv
KERNELS := .venv-kernels
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
SOURCES := twinserve tests examples setup.py

.PHONY: demo check docs test test-slow test-kernels bench clean

demo: $(VENV)/.installed
	$(BIN)/twinserve sweep sweeps/token_budget --out out/demo

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

# The index of modules, from their docstrings.
docs: $(VENV)/.installed-dev
	$(BIN)/python -m tests.tools.module_index

test: check
	$(BIN)/python -m pytest -n auto -m "not slow"

test-slow: $(VENV)/.installed-slow test-kernels
	$(BIN)/python -m pytest -m slow

# The Triton kernels on the CPU, in Triton's interpreter.
test-kernels: $(KERNELS)/.installed
	TRITON_INTERPRET=1 $(KERNELS)/bin/python -m pytest -m "not gpu" tests/real_backend/inputs/test_batch.py \
		tests/real_backend/attention/test_attention_triton.py tests/real_backend/kernels/test_kernels_pointwise.py \
		tests/real_backend/kernels/test_kernels_sample.py

bench: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/benchmarks --benchmark-enable --benchmark-only

clean:
	rm -rf $(VENV) $(KERNELS) out build *.egg-info

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	$(PIP) -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed constraints-test.txt
	$(PIP) -c constraints-test.txt -e ".[real,dev]"
	touch $@

$(VENV)/.installed-slow: $(VENV)/.installed-dev
	$(PIP) -c constraints-test.txt -e ".[real,dev,dask,ray,notebooks]"
	touch $@

$(KERNELS)/.installed: pyproject.toml constraints-kernels.txt
	$(PYTHON) -m venv $(KERNELS)
	$(KERNELS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-kernels.txt \
		-e . torch triton pytest hypothesis
	touch $@
