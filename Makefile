# The front door. On a machine with Python 3.11 or newer and a C/C++ compiler each of these works as the first and only
# command: `make run`, `make test`. Everything lands in .venv/ and build/, and `make distclean` removes both.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

PYTHON ?= $(shell scripts/find_python.sh)
TORCH_INDEX ?=# for example https://download.pytorch.org/whl/cpu: PyTorch without CUDA, a tenth of the download
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# Each process of the tests holds PyTorch, a device and a model: about 2 GiB.
TEST_JOBS ?= $(shell echo $$(( $(JOBS) < 4 ? $(JOBS) : 4 )))
ARGS ?=

venv := .venv
python := $(venv)/bin/python
done := $(venv)/done
pip_install := $(python) -m pip install --quiet --disable-pip-version-check --no-warn-conflicts -c constraints.txt \
	$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
with_venv := PATH="$(CURDIR)/$(venv)/bin:$$PATH"

.PHONY: help
help:
	@echo 'make run        build, then run the main job: real models on the tpu device, next to the CPU'
	@echo 'make test       build, then the C tests and the Python tests; ARGS="-k name -n 0" goes to pytest'
	@echo 'make test-all   the same, and all that PyTorch knows of every operator, module and optimizer (hours)'
	@echo 'make build      .venv with PyTorch 2.13.0, the C libraries, torch_tpu importable from .venv'
	@echo 'make check      formatting, lint, and who may include whom'
	@echo 'make format     format the C, C++ and Python sources'
	@echo 'make bench      speed next to a peer measured in the same run, also in build/bench/table.txt; QUICK=1 for less'
	@echo 'make asan       the C tests under AddressSanitizer and UndefinedBehaviorSanitizer (also: tsan, ubsan)'
	@echo 'make wheel      dist/ttpu-*.whl'
	@echo 'make clean      remove what was built; make distclean removes .venv too'
	@echo
	@echo 'PYTHON=python3.12         the interpreter to make .venv from'
	@echo 'TORCH_INDEX=URL           another package index for PyTorch; https://download.pytorch.org/whl/cpu saves gigabytes'
	@echo 'JOBS=4                    compile that many files at once'

# ---- .venv: a file in .venv/done for each finished step ------------------------------------------------------------

$(done)/venv:
	@scripts/check_tools.sh "$(PYTHON)"
	@[ -x $(python) ] || { echo "Making $(venv) with $(PYTHON)"; "$(PYTHON)" -m venv $(venv) || { \
	  echo "make: $(PYTHON) cannot make a virtual environment: install its venv module (Debian: apt-get install python3-venv)." >&2; \
	  rm -rf $(venv); exit 1; }; }
	@mkdir -p $(done) && touch $@

# PyTorch comes first and alone, so that nothing else decides its release.
$(done)/torch: requirements.txt constraints.txt | $(done)/venv
	@echo "Installing PyTorch 2.13.0 into $(venv)"
	@$(pip_install) torch==2.13.0
	@$(pip_install) -r requirements.txt
	@$(with_venv); export PATH; scripts/have_version.sh cmake 3.22 || $(pip_install) cmake
	@$(with_venv); export PATH; scripts/have_version.sh ninja 1.10 || $(pip_install) ninja
	@touch $@

$(done)/run: requirements-run.txt requirements-data.txt constraints.txt | $(done)/torch
	@echo "Installing what the examples need"
	@$(pip_install) torch==2.13.0 -r requirements-run.txt
	@$(pip_install) --no-deps -r requirements-data.txt
	@touch $@

$(done)/test: requirements-test.txt requirements-plugins.txt constraints.txt | $(done)/run
	@echo "Installing what the tests need"
	@$(pip_install) torch==2.13.0 -r requirements-test.txt
	@$(pip_install) --no-deps -r requirements-plugins.txt
	@touch $@

# torch_tpu in .venv is the tree's own: a path file and the entry points, no copy.
$(done)/package: pyproject.toml scripts/install_tree.py | $(done)/torch
	@$(python) scripts/install_tree.py
	@touch $@

# ---- build ---------------------------------------------------------------------------------------------------------

build/build.ninja: $(done)/torch
	@$(with_venv) cmake -S . -B build -G Ninja --log-level=WARNING -DTTPU_IN_TREE=ON \
	  -DPython_EXECUTABLE="$(CURDIR)/$(python)" > /dev/null
	@touch $@

.PHONY: build
build: build/build.ninja
	@$(with_venv) cmake --build build -j $(JOBS)
	@$(MAKE) -s --no-print-directory $(done)/package

.PHONY: test test-all
test-all: export TTPU_TEST_ALL := 1
test-all: test
test: build $(done)/test
	@$(with_venv) ctest --test-dir build --output-on-failure --no-tests=ignore -j $(JOBS)
	@$(python) -m pytest tests -n $(TEST_JOBS) --dist worksteal $(ARGS) || { code=$$?; [ $$code = 5 ] && echo "(no Python tests)"; exit $$(( code == 5 ? 0 : code )); }

.PHONY: run
run: build $(done)/run
	@$(python) examples/main_job.py $(ARGS)

.PHONY: bench
bench: build $(done)/run
	@mkdir -p build/bench
	@{ missed=; \
	   for name in zoo operators cost; do echo "== bench/$$name.py"; \
	     $(python) bench/$$name.py $(if $(QUICK),--quick) $(ARGS) || missed="$$missed $$name"; done; \
	   for name in memory models compile overhead plugins distributed $(if $(QUICK),,soak); do echo "== bench/$$name.py"; \
	     $(python) bench/$$name.py || missed="$$missed $$name"; done; \
	   [ -z "$$missed" ] || { echo "not every target is met, or it failed:$$missed"; exit 1; }; \
	 } | tee build/bench/table.txt

# ---- checks --------------------------------------------------------------------------------------------------------

c_files = $(shell find src include examples tests/c tests/fuzz \( -name '*.[ch]' -o -name '*.cpp' \) ! -name '*.inc.c') # .inc.c: tables, laid out by hand
py_files = $(wildcard torch_tpu tests bench examples scripts)

.PHONY: check format
check: $(done)/test
	@$(venv)/bin/clang-format --dry-run -Werror $(c_files)
	@$(venv)/bin/ruff format --quiet --check $(py_files)
	@$(venv)/bin/ruff check --quiet $(py_files)
	@$(python) scripts/check_arrows.py

format: $(done)/test
	@$(venv)/bin/clang-format -i $(c_files)
	@$(venv)/bin/ruff format --quiet $(py_files)
	@$(venv)/bin/ruff check --quiet --fix $(py_files)

# The C tests under sanitizers, in a build of their own. torch_tpu is not built: Python would need to be instrumented.
asan_flags := address,undefined
tsan_flags := thread
ubsan_flags := undefined
.PHONY: asan tsan ubsan
asan tsan ubsan: $(done)/torch
	@$(with_venv) cmake -S . -B build-$@ -G Ninja --log-level=WARNING -DTTPU_TORCH=OFF -DTTPU_SANITIZE=$($@_flags) > /dev/null
	@$(with_venv) cmake --build build-$@ -j $(JOBS)
	@$(with_venv) ctest --test-dir build-$@ --output-on-failure --no-tests=ignore -j $(JOBS)

.PHONY: wheel
wheel: $(done)/torch
	@$(pip_install) scikit-build-core
	@$(with_venv) $(python) -m pip wheel --quiet --no-deps --no-build-isolation -w dist .

.PHONY: clean distclean
clean:
	rm -rf build build-asan build-tsan build-ubsan dist torch_tpu/lib torch_tpu/_C*.so
	rm -f $(done)/package
distclean: clean
	rm -rf $(venv)
