# `make` prints the targets. Settings: make TARGET NAME=value
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3.11#: the interpreter that .venv is made from
ACCELERATOR ?= cpu#: cpu or gpu: which torch and onnxruntime are installed
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu#: where a CPU build of torch is looked for; empty: nowhere
DEMO ?= .demo#: folder of the demo's results
RECIPE ?= recipes/demo.toml#: the demo's recipe
SCRATCH ?= .demo-scratch#: folder of the results of the demo that pretrains
TEXT ?= #: folder of your own text for the demo, one file or folder per language
PORT ?= 8080#: where `make serve` listens
PYTEST_ARGS ?= #: more arguments for pytest
SOAK_FAULTS ?= 25#: faults that `make soak` does to each stage
SOAK_SWAPS ?= 50#: changes of a language in the endpoint that `make soak` asks all the time
IMAGES_WORK ?= .images-check#: new folder of what `make images-check` makes
IMAGES_ARGS ?= #: more arguments for docker/check.py, such as --pip-conf FILE behind a mirror
PINNED ?= docker/train.Dockerfile docker/serve.Dockerfile manifests/base/kustomization.yaml manifests/overlays/local/kustomization.yaml manifests/overlays/prod/kustomization.yaml#: files that `make pin-images` writes digests into

# A value is taken as it was given, `$` and blanks included, and stands in shell lines as one quoted word. What begins with
# a dash is a path all the same.
quoted = '$(subst ','\'',$(1))'
path = $(call quoted,$(if $(filter -%,$(firstword $(1))),./)$(1))
accelerator := $(strip $(ACCELERATOR))
torch_index := $(strip $(TORCH_INDEX))
demo_dir := $(call path,$(value DEMO))
recipe := $(call path,$(value RECIPE))
scratch_dir := $(call path,$(value SCRATCH))

bin := .venv/bin
stamp := .venv/.installed-$(accelerator)
torch_version := $(shell sed -n 's/^torch==//p' constraints.txt)
# Build tools come from the lock too, pip itself among them: the one that venv brings takes a minute longer. pip reads
# the lock for them only from the environment. Python compiles what it imports when it imports it, and keeps that: pip
# would take two minutes to compile everything.
unexport PYTHONDONTWRITEBYTECODE
pip_install := PIP_CONSTRAINT=constraints.txt PIP_NO_COMPILE=1 $(bin)/pip install
as_root := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
system_packages := chromium fonts-dejavu-core postgresql skopeo
demo := $(bin)/python -m pipelines demo --recipe $(recipe) --out $(demo_dir)$(if $(value TEXT), --text $(call path,$(value TEXT)))
scratch_recipe := recipes/demo-scratch.toml
scratch := $(bin)/python -m pipelines demo --recipe $(scratch_recipe) --out $(scratch_dir)
pytest := OMP_NUM_THREADS=1 $(bin)/python -m pytest --numprocesses=auto --maxprocesses=4 --durations=10

ifeq ($(filter $(accelerator),cpu gpu),)
$(error ACCELERATOR is '$(accelerator)', but must be cpu or gpu)
endif

.PHONY: help install demo demo-check demo-scratch demo-scratch-check demo-compare serve ui test \
	test-integration test-nightly nightly test-all coverage gpu-check mutants soak lint format types golden reference docs picture demo-picture images-check pin-images \
	system-deps lock clean

help: ## print this list
	@echo "Targets:"
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1|\2/p' Makefile | awk -F'|' '{ printf "  %-17s %s\n", $$1, $$2 }'
	@echo "Settings (make TARGET NAME=value):"
	@sed -nE 's/^([A-Z_]+) \?= ?(.*[^ ])? *#: (.*)/\1|\3|\2/p' Makefile \
	  | awk -F'|' '{ printf "  %-17s %s%s\n", $$1, $$2, $$3 ? " (" $$3 ")" : "" }'

install: $(stamp) ## make .venv and install everything into it; later runs reuse it

# The interpreter is tried, not only looked for: pyenv's shim may have no 3.11, Debian's python3.11 may have no venv.
$(bin)/python:
	@for candidate in $(call path,$(value PYTHON)) /usr/bin/python3.11; do \
	  if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null; then \
	    echo "Making .venv with $$("$$candidate" --version)"; exec "$$candidate" -m venv .venv; \
	  fi; \
	done; \
	printf 'No Python 3.11 with the venv module: tried %s and /usr/bin/python3.11.\n' $(call quoted,$(value PYTHON)) >&2; \
	echo "Debian, Ubuntu: apt-get install python3.11 python3.11-venv. Elsewhere: make PYTHON=/path/to/python3.11" >&2; \
	exit 1

$(stamp): pyproject.toml constraints.txt lingraft/_version.py | $(bin)/python
	@if ls .venv/.installed-* 2>/dev/null | grep -v -- '-$(accelerator)$$'; then \
	  echo "This .venv is for the other accelerator, and the two onnxruntime packages overwrite each other." >&2; \
	  echo "Remove .venv, then run make again." >&2; exit 1; \
	fi
	$(pip_install) --quiet pip
	$(if $(filter cpu,$(accelerator)),$(call install_cpu_torch))
	$(pip_install) --editable '.[all,dev,$(accelerator)]'
	$(bin)/pip check
	@touch $@

# The usual Linux build of torch brings gigabytes of CUDA. A CPU build is taken from pip's own sources where they have
# one, otherwise from TORCH_INDEX where it can be reached, otherwise the next line of `install` takes the usual build.
define install_cpu_torch
@$(pip_install) --quiet --no-deps 'torch==$(torch_version)+cpu' 2>/dev/null \
	|| { echo "pip's sources have no CPU build of torch $(torch_version); looking at: $(or $(torch_index),nowhere else)"; \
	     $(pip_install) --no-deps --timeout 15 --retries 1 $(if $(torch_index),--extra-index-url '$(torch_index)') \
	       'torch==$(torch_version)'; }
endef

define require_demo
@[ -f $(demo_dir)/mlflow.db ] || { printf "No %s: run 'make demo' first.\n" $(demo_dir)/mlflow.db >&2; exit 1; }
endef

demo: install ## the main job, from a model to a report, a search and served answers, on this machine
	$(demo)

demo-check: install ## fail where the demo's results are worse than they must be
	$(bin)/python -m benchmarks.demo_check --out $(demo_dir) --recipe $(recipe)

demo-scratch: install ## the same from raw text: a primary of its own, pretrained in minutes, and a depth search
	$(scratch)

demo-scratch-check: install ## fail where the results of demo-scratch are worse than they must be
	$(bin)/python -m benchmarks.scratch_check --out $(scratch_dir) --recipe $(scratch_recipe)

demo-compare: install ## demo-scratch with standard adaptation beside it; fail where the mini-model is behind that
	$(scratch) --compare
	$(bin)/python -m benchmarks.scratch_check --out $(scratch_dir) --recipe $(scratch_recipe)

serve: install ## serve the demo's bundles until stopped
	@mapfile -d '' -t bundles < <(find $(demo_dir)/bundle -maxdepth 2 -name manifest.json -printf '%h\0' 2>/dev/null); \
	[ "$${#bundles[@]}" -gt 0 ] || { printf "No %s: run 'make demo' first.\n" $(demo_dir)/bundle >&2; exit 1; }; \
	echo lingraft serve "$${bundles[@]@Q}" --port $(call quoted,$(PORT)); \
	exec $(bin)/lingraft serve "$${bundles[@]}" --port $(call quoted,$(PORT))

ui: install ## MLflow's pages on the demo's runs and models
	$(require_demo)
	$(bin)/mlflow ui --backend-store-uri "$$($(bin)/python -m lingraft.artifacts.addresses $(demo_dir)/mlflow.db)" --workers 1

test: lint types ## install, lint, type-check and run the fast tests
	$(pytest) --dist=worksteal -m "not integration and not nightly" $(PYTEST_ARGS)

test-integration: install ## the tests that need what system-deps installs, or many seconds
	$(pytest) --dist=loadfile -m "integration and not nightly" $(PYTEST_ARGS)

test-nightly: install ## soaks, grids of parameters, every fault at every place: before an issue that touches them ends
	$(pytest) --dist=loadfile -m nightly $(PYTEST_ARGS)

nightly: test-nightly demo-compare mutants ## test-nightly, demo-scratch beside standard adaptation, mutants

test-all: test test-integration test-nightly ## every test

coverage: install ## the fast tests again, and which lines they reach
	$(pytest) --dist=worksteal -m "not integration and not nightly" --cov --cov-report=term $(PYTEST_ARGS)

mutants: install ## break the modules of [tool.mutmut] one expression at a time, and list what no test notices
	$(pip_install) --quiet --editable '.[mutants]'
	$(bin)/mutmut run
	$(bin)/mutmut results

soak: install ## kill, stop and damage every training stage; ask the endpoint while languages change
	SOAK_FAULTS=$(SOAK_FAULTS) SOAK_SWAPS=$(SOAK_SWAPS) $(bin)/python -m pytest -m integration \
	  tests/interrupted/test_soak.py tests/serving/repository/test_under_load.py $(PYTEST_ARGS)

lint: install ## check format and lint rules
	$(bin)/ruff format --check .
	$(bin)/ruff check .

format: install ## format, and mend what the linter can mend
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

types: install ## check types
	$(bin)/mypy

golden: install ## write the listings of pipelines in tests/golden anew; read the difference before committing it
	GOLDEN=write $(bin)/python -m pytest --quiet tests/pipelines/test_compiled.py -k as_they_are_listed

reference: install ## write docs/reference/recipe.md anew from the models of recipes
	$(bin)/python -m docs.recipe_reference

gpu-check: install ## whether this machine's GPU computes what a CPU does
	CUBLAS_WORKSPACE_CONFIG=:4096:8 $(bin)/python -m pytest --device cuda tests/training/test_devices.py $(PYTEST_ARGS)

# The packages that build the site are an extra of their own, so that nothing else waits for them.
docs: install ## build the documentation as a website in .site, and check its links
	$(pip_install) --quiet --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --quiet

picture: install ## take docs/playground.png anew in Chromium, of the bundle of `make demo`
	$(bin)/python -m tests.serving.playground.picture $(demo_dir)/bundle docs/playground.png

demo-picture: install ## take docs/demo-report.png anew in Chromium, of the report of `make demo`
	$(bin)/python -m tests.reports.run.picture $(demo_dir)/report docs/demo-report.png

images-check: install ## build both images and use them, as root with buildah and debootstrap, after `make demo-scratch`
	$(bin)/python docker/check.py --demo $(scratch_dir) --work $(call path,$(value IMAGES_WORK)) $(IMAGES_ARGS)

pin-images: install ## write the digests of images, read from their registries, where they are named by tags
	$(bin)/python docker/pin.py $(foreach file,$(PINNED),$(call path,$(file)))

# The demo, too, fetches its text by apt's lists.
system-deps: ## install what the integration tests need from Debian
	$(as_root) apt-get update -q
	$(as_root) env DEBIAN_FRONTEND=noninteractive \
	  apt-get install -qy --no-install-recommends --no-upgrade $(system_packages)

lock: install ## write constraints.txt anew from what .venv holds
	@[ $(accelerator) = cpu ] || { echo "Write the lock from a cpu environment." >&2; exit 1; }
	@$(pip_install) --quiet --editable '.[docs,mutants]'
	@{ grep '^#' constraints.txt; \
	   $(bin)/pip freeze --all --exclude-editable \
	     | sed -E 's/\+cpu$$//; s/^onnxruntime==(.*)/&\nonnxruntime-gpu==\1/' | LC_ALL=C sort -f; \
	} > constraints.txt.new
	@mv constraints.txt.new constraints.txt

# A folder is a demo's if it has the mark that a demo leaves (pipelines/local.py); an empty one may go, too.
clean: ## remove what the targets wrote, except .venv and the cache of downloaded text
	@refuse() { \
	  printf '%s is not removed: %s. Remove it yourself if nothing in it is of use.\n' "$$demo" "$$1" >&2; exit 1; }; \
	for demo in $(demo_dir) $(scratch_dir); do \
	  within=$$(realpath -e -- "$$demo" 2>/dev/null || true); \
	  if [ -L "$$demo" ]; then refuse 'it is a link'; \
	  elif [ ! -e "$$demo" ] || rmdir -- "$$demo" 2>/dev/null; then :; \
	  elif [ ! -f "$$demo/.lingraft" ]; then refuse 'it has no file .lingraft, by which a folder of results is known'; \
	  elif [[ "$$(pwd -P)/ $$(realpath -e -- ~)/" == *"$${within%/}/"* ]]; then refuse 'it holds this folder or your home'; \
	  else printf 'rm -rf -- %q\n' "$$demo"; rm -rf -- "$$demo"; fi; \
	done
	rm -rf .site dist mutants htmlcov .coverage .mypy_cache .pytest_cache .ruff_cache
