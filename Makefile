# Each target sets up .venv by itself; nothing needs to be installed first but Python 3.11 or newer.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
LINTERS := .venv-deploy/.ready
AUDITOR := .venv-audit/.ready
CASES  ?= 100000
# Of the image test: 1, auto (skipped where no container runs), or a folder to keep what is built.
FEDECADO_IMAGES ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-images fuzz lint lint-deploy format proto bench audit clean

help: ## Show what each target does
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

$(READY): pyproject.toml $(wildcard server/fedecado/server/numerics/native/*.[ch])
	@echo "==> Setting up $(VENV) (first time only; torch is a large download)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY) ## Run a federation on this machine: 10 workers, FedECADO and then FedAvg
	@echo "==> Running 10 worker processes on handwritten digits, FedECADO and then FedAvg (1 to 2 minutes)"
	$(BIN)/fedecado up --name demo --clients 10 --active 5 --rounds 60 --rates 0.01,0.1 --epochs 1,10 \
	  --task digits --task-arg alpha=0.1 --compare fedavg $(ARGS)

test: $(READY) ## Run the tests
	@echo "==> Running the tests"
	$(BIN)/python -m pytest -n auto $(ARGS)

test-images: $(READY) ## Build the container images with podman and try them (root, minutes)
	@echo "==> Building and trying the images"
	FEDECADO_IMAGES=$(FEDECADO_IMAGES) $(BIN)/python -m pytest -n0 -v -rs -s tests/deploy/test_deploy_images.py $(ARGS)

fuzz: $(READY) ## Try 100,000 hostile messages, sessions and configurations (CASES=N for another number)
	@echo "==> Fuzzing with $(CASES) cases (some minutes)"
	FEDECADO_EXPLORE=1 FEDECADO_FUZZ=$(CASES) $(BIN)/python -m pytest -n auto --timeout 0 tests/fuzz $(ARGS)

lint: $(READY) ## Check formatting, style and types
	@echo "==> Checking formatting, style and types"
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy server client common tests benchmarks deploy/components proto/generate.py
	$(BIN)/python proto/generate.py --check
	cd proto && ../$(BIN)/buf lint
	$(BIN)/python deploy/components/prometheus/prometheus_rule.py --check

$(LINTERS): deploy/lint-requirements.txt
	@echo "==> Setting up .venv-deploy (first time only)"
	$(PYTHON) -m venv .venv-deploy
	.venv-deploy/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

lint-deploy: $(READY) $(LINTERS) ## Check the Dockerfile and the Kubernetes manifests
	@echo "==> Checking the Dockerfile and the manifests"
	$(BIN)/python tests/deploy/validate.py .venv-deploy/bin

format: $(READY) ## Format the code and apply safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: $(READY) ## Regenerate the protobuf code and lint the protocol
	@echo "==> Generating proto/fedecado/v1"
	$(BIN)/python proto/generate.py
	cd proto && ../$(BIN)/buf lint

bench: $(READY) ## Measure the claims made about speed (ARGS=--quick for a short run)
	@echo "==> Measuring; results go to benchmarks/results"
	$(BIN)/python -m benchmarks $(ARGS)

$(AUDITOR):
	@echo "==> Setting up .venv-audit (first time only)"
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.7,<3'
	@touch $@

# Local builds (torch's +cpu) are looked up under the version they were built from.
audit: $(READY) $(AUDITOR) ## Look the installed packages up in the database of known vulnerabilities (needs a network)
	$(BIN)/python -m pip list --format=freeze --exclude-editable --disable-pip-version-check | sed 's/+.*//' > .venv-audit/installed.txt
	@$(BIN)/python tests/audit.py .venv-audit/bin/pip-audit .venv-audit/installed.txt $(ARGS)

clean: ## Remove the virtual environment and everything generated
	rm -rf $(VENV) .venv-deploy .venv-audit runs dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
