PYTHON ?= python3
VENV ?= .venv
PYTEST = $(VENV)/bin/python -m pytest -n 2 --dist worksteal

.PHONY: demo test quick lint docs clean

demo: $(VENV)/.installed  # everything for half a minute, without a GPU
	$(VENV)/bin/python -m reasoning_gym_environment demo

test: $(VENV)/.installed-dev  # all tests, and which ten took longest
	$(PYTEST) --durations=10 --durations-min=2

quick: lint  # lint, types and the short tests that start no process: before each commit
	$(PYTEST) -m "not slow and not processes and not lengthy"

lint: $(VENV)/.installed-dev  # style and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

docs: $(VENV)/.installed-dev  # write the tables that are made from the code
	$(VENV)/bin/python docs/configuration_table.py

clean:  # remove the virtual environment
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --constraint requirements.txt --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --constraint requirements.txt --editable '.[dev]'
	touch $@ $(VENV)/.installed
