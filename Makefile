# The front door. `make help` lists what it can do; a line that begins with "##@" names a group of targets.

OPERATOR ?= memcached#                             the operator that run, install, deploy, docker-build … act on
IMG      ?= platform/$(OPERATOR)-operator:dev#     the image that docker-build, docker-push and deploy act on
NODES    ?= 2#                                     nodes of the local cluster, 1 to 5
CLUSTER  ?= auto#                                  auto, local, kind or current (what KUBECONFIG names)
ARGS     ?=#                                       more arguments: flags of the operator for run, of pytest for test-*

OPERATORS := $(patsubst operators/%/operator.py,%,$(wildcard operators/*/operator.py))
PYTHON    := .venv/bin/python
KUBECTL   := .venv/bin/kubectl
CLUSTERS  := $(PYTHON) -m e2e.cluster
PYTEST    := $(PYTHON) -m pytest
PARALLEL  := -n auto --dist worksteal
HELM       = $(shell $(CLUSTERS) binary helm)
NAMESPACE := platform-system

# The local cluster when it is up; else whatever kubectl finds by itself.
export KUBECONFIG ?= $(wildcard $(CURDIR)/.cluster/kubeconfig)

.SHELLFLAGS := -eu -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help up down status kubeconfig test test-unit test-api test-containers test-e2e test-long bench dashboards lint \
        format new-operator new-kind manifests charts lock install uninstall run docker-build docker-push deploy undeploy .venv

help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	      /^[a-z0-9.-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' Makefile
	@printf '\nSettings (make target NAME=value)\n'
	@awk '/^[A-Z]+ +\?=/ {name = $$1; split($$0, part, /\?= */); split(part[2], value, /# */); \
	      printf "  %-15s %s (now: %s)\n", name, value[2], value[1]}' Makefile

##@ The cluster

up: .venv ## A cluster with the platform installed and the samples Ready; safe to repeat (NODES, CLUSTER)
	@$(CLUSTERS) up --cluster $(CLUSTER) --nodes $(NODES) $(if $(filter file,$(origin IMG)),,--image $(IMG))

down: .venv ## Take the local cluster down, leaving nothing behind
	@$(CLUSTERS) down

status: .venv ## What is up: nodes, pods, resources
	@$(CLUSTERS) status

kubeconfig: .venv ## Print the path of the cluster's kubeconfig: export KUBECONFIG=$(make -s kubeconfig)
	@$(CLUSTERS) kubeconfig

##@ Tests

test: ## Everything a change must pass: lint, unit, API, container and end-to-end tests
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory test-unit
	@$(MAKE) --no-print-directory test-api
	@$(MAKE) --no-print-directory test-containers
	@$(MAKE) --no-print-directory test-e2e

test-unit: .venv ## Pure parts and the library against an in-memory API; seconds, no root
	@echo "==> unit tests"
	@$(PYTEST) $(PARALLEL) tests/unit -m "not long" $(ARGS)

test-api: .venv ## Against a real API server (etcd and kube-apiserver, no nodes); no root
	@echo "==> API tests"
	@$(PYTEST) $(PARALLEL) tests/api -m "not long" $(ARGS)

test-containers: .venv ## Against the databases themselves, on the Docker that answers, else on one of our own (root)
	@echo "==> container tests"
	@$(PYTEST) tests/containers -m "not long" $(ARGS)

# The cluster's own test takes it down and looks for what is left, so it runs last, by itself; and not on a cluster that
# was up before, for somebody may have something in it.
E2E = @was_up=$$($(CLUSTERS) kubeconfig 2> /dev/null || true); \
      $(MAKE) --no-print-directory up; \
      $(PYTEST) e2e/scenarios --ignore e2e/scenarios/test_cluster.py $(1) $(ARGS); \
      if [ -n "$$was_up" ]; then echo "The cluster was up before, and stays up: make down is not tested."; \
      else $(PYTEST) e2e/scenarios/test_cluster.py; fi

test-e2e: .venv ## Real pods on the local cluster, and its teardown unless it was up before
	@echo "==> end-to-end tests"
	$(call E2E,-m "not long")

test-long: .venv ## Every end-to-end and container test, the long ones too, and every crash scenario on a real API server
	@echo "==> every crash scenario, and long walks through random worlds"
	@$(PYTEST) $(PARALLEL) tests/unit -m long --timeout 3600 $(ARGS)
	@echo "==> crash scenarios on a real API server"
	@$(PYTEST) $(PARALLEL) tests/api -m long --timeout 900 $(ARGS)
	@echo "==> container tests with every version"
	@$(PYTEST) tests/containers -m long $(ARGS)
	@echo "==> end-to-end tests, the long ones too"
	$(call E2E,--timeout 3600)

bench: .venv ## How fast and how small, against the bare API in the same run; slow is no failure (ARGS=--quick)
	@$(PYTHON) -m e2e.bench $(ARGS)
	@$(PYTHON) -m e2e.bench.etcd $(filter --quick,$(ARGS))
	@$(PYTHON) -m e2e.bench.redis $(filter --quick,$(ARGS))

dashboards: .venv ## Pictures of the dashboards in docs/pictures, of what the cluster does for a while (ARGS="--minutes 3")
	@$(PYTHON) -m e2e.pictures $(ARGS)

lint: .venv charts ## Style, types, layers, charts, and that generated files are as generated
	@echo "==> lint"
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@fresh=$$(mktemp -d); trap 'rm -rf $$fresh' EXIT; \
	$(MAKE) --no-print-directory -s manifests GENERATED=$$fresh; \
	(cd $$fresh && find . -type f) | while read -r generated; do \
	    diff -u $$generated $$fresh/$$generated \
	    || { echo "$$generated differs from what it is generated from; mend: make manifests"; exit 1; }; \
	done
	@$(HELM) lint --quiet charts/platform $(OPERATORS:%=charts/%-operator)

format: .venv ## Put the code into shape
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

##@ Generated files

GENERATED := .
manifests: .venv ## Write CRDs and their reference pages, what charts can be told, dashboards and rules
	@$(PYTHON) -m tools.manifests $(GENERATED)

charts: .venv ## Bring the charts' dependencies (all of this repository) into place
	@for chart in $(OPERATORS:%=charts/%-operator) charts/platform; do \
	    $(HELM) dependency update $$chart > /dev/null; \
	done

# The locks name no index: machines have their own.
UV_COMPILE = .venv/bin/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
             --no-emit-index-url --no-header
lock: .venv ## Resolve the dependencies anew: locks/dev.txt, and one lock an operator for its image
	$(UV_COMPILE) --all-extras --group dev --output-file locks/dev.txt
	for operator in $(OPERATORS); do \
	    extra=$$(sed -n "s/^$$operator = \[.*/--extra=$$operator/p" pyproject.toml); \
	    $(UV_COMPILE) $$extra --constraint locks/dev.txt --output-file locks/$$operator.txt; \
	done

##@ A new operator

NAME ?=#                                           the name of the operator that new-operator makes, such as greeter
KIND ?=#                                           the kind that new-operator and new-kind make, such as Greeter

new-operator: .venv ## A new operator that works, to fill in: code, chart, sample and tests (NAME, KIND)
	@$(PYTHON) -m tools.scaffold operator "$(NAME)" $(KIND)
	@$(MAKE) --no-print-directory --old-file=.venv/stamp manifests

new-kind: .venv ## A further kind of an operator, to fill in (OPERATOR, KIND)
	@$(PYTHON) -m tools.scaffold kind "$(OPERATOR)" "$(KIND)"
	@$(MAKE) --no-print-directory --old-file=.venv/stamp manifests

##@ One operator (OPERATOR, IMG), as known from kubebuilder

install: .venv ## Apply the CRDs to the current cluster
	@$(KUBECTL) apply --server-side --force-conflicts -f charts/$(OPERATOR)-operator/files/crds

uninstall: .venv ## Delete the CRDs; refused while resources exist, for they would be deleted too (FORCE=1)
	@for crd in charts/$(OPERATOR)-operator/files/crds/*.yaml; do \
	    name=$$(sed -n 's/^  name: //p' $$crd | head -1); \
	    left=$$($(KUBECTL) get "$$name" --all-namespaces --no-headers --ignore-not-found 2>&1) || { \
	        case $$left in *"doesn't have a resource type"*) left=;; esac; }; \
	    if [ -n "$$left" ] && [ "$(FORCE)" != 1 ]; then \
	        printf '%s\n' "$$left" | head -5; \
	        echo "Deleting $$name would delete these resources and what they own. Mend: delete them first, or FORCE=1."; \
	        exit 1; \
	    fi; \
	done
	@$(KUBECTL) delete --ignore-not-found -f charts/$(OPERATOR)-operator/files/crds

run: .venv ## Run the operator on this machine against the current cluster (ARGS="--log-level debug")
	@$(PYTHON) -m operators.$(OPERATOR) $(ARGS)

docker-build: .venv ## Build the operator's image IMG; without docker by buildah, and into the local cluster if it is up
	@if docker info > /dev/null 2>&1; then \
	    docker build --build-arg OPERATOR=$(OPERATOR) --tag $(IMG) .; \
	else \
	    $(CLUSTERS) image build $(OPERATOR) $(IMG); \
	fi

docker-push: .venv ## Push IMG to the registry it names
	@if docker info > /dev/null 2>&1; then docker push $(IMG); else $(CLUSTERS) image push $(IMG); fi

# The CRD may still be there from another release: it is kept by all, so its owner is whoever came last.
deploy: .venv charts ## Install this operator's chart alone, with the image IMG
	@! $(HELM) status platform --namespace $(NAMESPACE) > /dev/null 2>&1 || { \
	    echo "The release platform is installed, and two operators would contend for the same resources."; \
	    echo "Mend: $(HELM) uninstall platform --namespace $(NAMESPACE); resources and CRDs stay."; exit 1; }
	@image=$(IMG); \
	$(HELM) upgrade --install $(OPERATOR)-operator charts/$(OPERATOR)-operator --namespace $(NAMESPACE) \
	    --create-namespace --take-ownership --force-conflicts --wait --timeout 2m --set image.repository=$${image%:*} --set image.tag=$${image##*:}

undeploy: .venv ## Remove what deploy installed; the CRDs, and so all resources, stay
	@$(HELM) uninstall $(OPERATOR)-operator --namespace $(NAMESPACE) --ignore-not-found

##@ The workshop

.venv: .venv/stamp ## The Python environment, exactly as locked; made anew when the lock changes

.venv/stamp: locks/dev.txt pyproject.toml
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Python 3.11 or newer is needed as python3; this is $$(python3 --version). Mend: install it."; exit 1; }
	@python3 -c 'import ensurepip' 2> /dev/null || { \
	    if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	        apt-get install -y --no-install-recommends python3-venv > /dev/null; \
	    else echo "python3 cannot make environments. Mend: apt-get install python3-venv, as root."; exit 1; fi; }
	@echo "making .venv from locks/dev.txt"
	@[ -x $(PYTHON) ] || python3 -m venv .venv
	@awk '/^uv==/ {on = 1; print; next} on && /--hash/ {print; next} {on = 0}' locks/dev.txt > .venv/uv.txt
	@.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r .venv/uv.txt
	@.venv/bin/uv pip install --quiet --python $(PYTHON) --require-hashes --no-deps -r locks/dev.txt
	@touch $@
