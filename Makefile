PYTHON ?= python3
VENV ?= .venv

.PHONY: demo test lint docs clean

demo: $(VENV)/.installed
	$(VENV)/bin/python -m reasoning_gym_environment demo

test: $(VENV)/.installed-dev
	$(VENV)/bin/python -m pytest

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

docs: $(VENV)/.installed-dev
	$(VENV)/bin/python docs/configuration_table.py

clean:
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --constraint requirements.txt --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --constraint requirements.txt --editable '.[dev]'
	touch $@ $(VENV)/.installed
