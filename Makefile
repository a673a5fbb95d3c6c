# `make help` lists the targets. A line that begins with "##@" names a group of targets.

OPERATOR ?= memcached#                             operator for run, install, deploy, docker-build …
IMG      ?= platform/$(OPERATOR)-operator:dev#     image for docker-build, docker-push and deploy
NODES    ?= 2#                                     number of nodes of the local cluster, 1 to 5
CLUSTER  ?= auto#                                  auto, local, kind, or current (the current context of KUBECONFIG)
REGISTRY ?=#                                       local: publish to a registry on this machine and install from it; with CLUSTER=current, push-images: prefix of images
TAG      ?=#                                       with REGISTRY of your own: tag of the images (default: the version)
KUBERNETES ?= newest#                              Kubernetes of the local cluster and of the API tests: newest, oldest, or a version such as 1.30
VERSIONS ?=#                                       versions of databases to build in addition to those of the samples: all, or 3.7.3,9.1
LEVEL    ?= commit#                                which tests run: commit, nightly (more) or weekly (all)
ARGS     ?=#                                       more arguments: operator flags for run, pytest options for test-*

OPERATORS := $(patsubst operators/%/operator.py,%,$(wildcard operators/*/operator.py))
PYTHON    := .venv/bin/python
KUBECTL   := .venv/bin/kubectl
CLUSTERS  := $(PYTHON) -m tools.local
PYTEST    := $(PYTHON) -m pytest
PARALLEL  := -n auto --dist worksteal
# Tests of a level, and the seconds that one may take (of a commit: pyproject.toml).
# pytest runs the files that ARGS names, or else these directories.
unless_named = $(if $(filter tests/% e2e/%,$(ARGS)),,$(1))
SELECTED   = --level $(LEVEL) $(TIMEOUT_$(LEVEL):%=--timeout %)
TIMEOUT_nightly := 900
TIMEOUT_weekly  := 3600
# Programs of the API tests, which are built before the time limit of a test begins.
SERVERS   := kube-apiserver helm helm3 kubeconform
# API tests that depend most on the version of Kubernetes: test-weekly runs them on the oldest, the workflows run all.
VERSIONED := test_crd or test_resize or test_webhooks or test_watch_faults or test_rights or test_process
HELM       = $(shell $(CLUSTERS) binary helm)
NAMESPACE := platform-system

# The local cluster if it is running; otherwise kubectl's default.
export KUBECONFIG ?= $(wildcard $(CURDIR)/.cluster/kubeconfig)
# Read by the programs that start an API server or build its binaries.
export KUBERNETES
# Every test session and command starts with the compiled modules of the one before.
unexport PYTHONDONTWRITEBYTECODE
# Shared by all clones, as other results that are slow to make: it has a hash of each file.
export MYPY_CACHE_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/platform/mypy

.SHELLFLAGS := -eu -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help up down status kubeconfig test test-unit test-api test-containers test-e2e test-nightly test-weekly bench dashboards lint \
        format release-check upstream-fixes release-dry-run new-operator new-kind manifests charts lock install uninstall run docker-build docker-push push-images deploy undeploy .venv

help: ## List targets and settings
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	      /^[a-z0-9.-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' Makefile
	@printf '\nSettings (make target NAME=value)\n'
	@awk '/^[A-Z]+ +\?=/ {name = $$1; split($$0, part, /\?= */); split(part[2], value, /# */); \
	      printf "  %-15s %s%s\n", name, value[2], value[1] == "" ? "" : " (default: " value[1] ")"}' Makefile

##@ Cluster

up: .venv ## Start a cluster, install the operators and apply the samples; safe to repeat (NODES, CLUSTER, KUBERNETES, REGISTRY, TAG, VERSIONS)
	@$(CLUSTERS) up --cluster $(CLUSTER) --nodes $(NODES) --kubernetes $(KUBERNETES) $(if $(VERSIONS),--versions $(VERSIONS)) $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(TAG),--tag $(TAG)) $(if $(filter file,$(origin IMG)),,--image $(IMG))

down: .venv ## Remove the local cluster; keeps only the cache of binaries and images
	@$(CLUSTERS) down --cluster $(CLUSTER)

status: .venv ## Show nodes, pods and the resources of the operators
	@$(CLUSTERS) status

kubeconfig: .venv ## Print the path of the cluster's kubeconfig: export KUBECONFIG=$(make -s kubeconfig)
	@$(CLUSTERS) kubeconfig

##@ Tests

test: ## Run what each commit must pass: lint, unit, API, container and end-to-end tests (LEVEL)
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory test-unit
	@$(MAKE) --no-print-directory test-api
	@$(MAKE) --no-print-directory test-containers
	@$(MAKE) --no-print-directory test-e2e

test-nightly: ## Run test with LEVEL=nightly: all tests but sweeps and scenarios that take hours
	@$(MAKE) --no-print-directory test LEVEL=nightly

test-weekly: ## Run test with LEVEL=weekly: all tests, and some API tests on the oldest Kubernetes
	@$(MAKE) --no-print-directory test LEVEL=weekly
	@$(MAKE) --no-print-directory test-api LEVEL=weekly KUBERNETES=oldest ARGS="-k '$(VERSIONED)'"

test-unit: .venv ## Run unit tests, with an in-memory API server; needs no root (LEVEL)
	@echo "==> unit tests"
	@$(PYTEST) $(PARALLEL) $(call unless_named,tests/*/unit tests/*/simulation) $(SELECTED) $(ARGS)

test-api: .venv ## Run tests on a real API server (etcd and kube-apiserver, no nodes); needs no root (KUBERNETES, LEVEL)
	@echo "==> API tests, Kubernetes $(KUBERNETES)"
	@$(CLUSTERS) build $(SERVERS)
	@$(PYTEST) $(PARALLEL) $(call unless_named,tests/*/api) $(SELECTED) $(ARGS)

# Those with Docker share one daemon, and run next to the others, which start programs of this machine and mostly wait.
DOCKER = tests/etcd/containers tests/memcached/containers
test-containers: .venv ## Run tests on real databases, in a running Docker or one that the tests start (needs root) (LEVEL)
	@echo "==> container tests"
	@$(if $(filter tests/%,$(ARGS)),$(PYTEST) $(SELECTED) $(ARGS),\
	output=$$(mktemp); trap 'rm -f $$output' EXIT; \
	$(PYTEST) $(DOCKER) $(SELECTED) $(ARGS) > $$output 2>&1 & with_docker=$$!; \
	failed=0; $(PYTEST) -n auto --dist loadfile $(filter-out $(DOCKER),$(wildcard tests/*/containers)) $(SELECTED) $(ARGS) || failed=$$?; \
	wait $$with_docker || failed=$$?; cat $$output; exit $$failed)

# The test of the cluster removes it and checks for leftovers, so it runs last, in a separate session. It is skipped if
# the cluster was already running, because a user may have data in it. The higher levels need every version. Some tests
# build a version when a command first names it, which counts towards their timeout.
test-e2e: .venv ## Run end-to-end tests on the local cluster; test its removal unless it was already running (LEVEL)
	@echo "==> end-to-end tests"
	@was_up=$$($(CLUSTERS) kubeconfig 2> /dev/null || true); \
	$(MAKE) --no-print-directory up $(if $(ARGS)$(filter commit,$(LEVEL)),,VERSIONS=all); \
	$(PYTEST) $(call unless_named,e2e/scenarios) --ignore e2e/scenarios/test_cluster.py --timeout 900 $(SELECTED) $(ARGS); \
	if [ -n "$$was_up" ]; then echo "The cluster was already running and keeps running, so make down is not tested."; \
	else $(PYTEST) e2e/scenarios/test_cluster.py; fi

bench: .venv ## Measure speed and resource use, compared with the bare API; slow results are no error (ARGS=--quick)
	@$(PYTHON) -m e2e.bench $(ARGS)
	@$(PYTHON) -m e2e.bench.etcd $(filter --quick,$(ARGS))
	@$(PYTHON) -m e2e.bench.redis_planning $(filter --quick,$(ARGS))
	@$(PYTHON) -m e2e.bench.certificates
	@$(PYTHON) -m e2e.bench.redis $(filter --quick,$(ARGS))
	@$(PYTHON) -m e2e.bench.redis_large

dashboards: .venv ## Draw the dashboards from a run on the cluster into docs/pictures (ARGS="--minutes 3")
	@$(PYTHON) -m e2e.pictures $(ARGS)

lint: .venv charts ## Check style, types, import layers and charts, and that generated files are up to date
	@echo "==> lint"
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@$(PYTHON) -m tools.vocabulary
	@fresh=$$(mktemp -d); trap 'rm -rf $$fresh' EXIT; \
	$(MAKE) --no-print-directory -s manifests GENERATED=$$fresh; \
	(cd $$fresh && find . -type f) | while read -r generated; do \
	    diff -u $$generated $$fresh/$$generated \
	    || { echo "$$generated is outdated; fix: make manifests"; exit 1; }; \
	done
	@$(HELM) lint --quiet charts/platform $(OPERATORS:%=charts/%-operator)

format: .venv ## Format the code and fix lint errors that ruff can fix
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

##@ Generated files

GENERATED := .
manifests: .venv ## Generate CRDs, reference pages, chart values, dashboards and alert rules
	@$(PYTHON) -m tools.manifests $(GENERATED)

release-dry-run: .venv ## Make all artifacts of a release in dist/: images of both architectures, SBOMs, charts, notes (ARGS=VERSION)
	@$(PYTHON) -m tools.release dry-run $(ARGS)

release-check: .venv ## Check what only a release needs: that the catalogues of versions are recent (ARGS=YYYY-MM-DD)
	@$(PYTHON) -m tools.catalogue_age $(ARGS)

upstream-fixes: .venv ## List commits of an engine that look like security fixes (ARGS="memcached 1.6.42 1.6.45 --copy DIR")
	@$(PYTHON) -m tools.upstream_fixes $(ARGS)

charts: .venv ## Update the charts' dependencies (all are in this repository)
	@$(PYTHON) -m tools.release dependencies

# The locks contain no index URL: each machine has its own. common.txt has the packages of every operator, and an operator's
# lock only its further ones, so that the images share the layer of the common ones.
UV_COMPILE = .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
             --no-emit-index-url --no-header
lock: .venv ## Resolve the dependencies again: locks/dev.txt, and the packages of the images and of the plugin
	$(UV_COMPILE) pyproject.toml --all-extras --group dev --output-file locks/dev.txt
	echo uv | $(UV_COMPILE) - --constraint locks/dev.txt --output-file locks/build.txt
	$(UV_COMPILE) pyproject.toml --constraint locks/dev.txt --output-file locks/common.txt
	$(UV_COMPILE) pyproject.toml --extra kubectl --constraint locks/dev.txt --output-file locks/kubectl.txt
	common=$$(sed -n 's/^\([a-z0-9._-]*\)==.*/--no-emit-package=\1/p' locks/common.txt); \
	for operator in $(OPERATORS); do \
	    extra=$$(sed -n "s/^$$operator = \[.*/--extra=$$operator/p" pyproject.toml); \
	    $(UV_COMPILE) pyproject.toml $$extra --constraint locks/dev.txt $$common --output-file locks/$$operator.txt; \
	done

##@ New operator

NAME ?=#                                           name of the new operator for new-operator, such as greeter
KIND ?=#                                           kind for new-operator and new-kind, such as Greeter

new-operator: .venv ## Create a working operator as a starting point: code, chart, sample and tests (NAME, KIND)
	@$(PYTHON) -m tools.scaffold operator "$(NAME)" $(KIND)
	@$(MAKE) --no-print-directory --old-file=.venv/stamp manifests

new-kind: .venv ## Add a kind to an operator as a starting point (OPERATOR, KIND)
	@$(PYTHON) -m tools.scaffold kind "$(OPERATOR)" "$(KIND)"
	@$(MAKE) --no-print-directory --old-file=.venv/stamp manifests

##@ One operator (OPERATOR, IMG), as in kubebuilder

install: .venv ## Apply the CRDs to the current cluster
	@$(KUBECTL) apply --server-side --force-conflicts -f charts/$(OPERATOR)-operator/files/crds

uninstall: .venv ## Delete the CRDs; refused while resources exist, because these would be deleted too (FORCE=1)
	@for crd in charts/$(OPERATOR)-operator/files/crds/*.yaml; do \
	    name=$$(sed -n 's/^  name: //p' $$crd | head -1); \
	    left=$$($(KUBECTL) get "$$name" --all-namespaces --no-headers --ignore-not-found 2>&1) || { \
	        case $$left in *"doesn't have a resource type"*) left=;; esac; }; \
	    if [ -n "$$left" ] && [ "$(FORCE)" != 1 ]; then \
	        printf '%s\n' "$$left" | head -5; \
	        echo "error: deleting the CRD $$name would delete these resources and their owned objects"; \
	        echo "  fix: delete the resources first, or make uninstall OPERATOR=$(OPERATOR) FORCE=1"; \
	        exit 1; \
	    fi; \
	done
	@$(KUBECTL) delete --ignore-not-found -f charts/$(OPERATOR)-operator/files/crds

run: .venv ## Run the operator on this machine against the current cluster (ARGS="--log-level debug")
	@$(PYTHON) -m operators.$(OPERATOR) $(ARGS)

docker-build: .venv ## Build the operator's image IMG; without docker, use buildah and load it into the local cluster
	@if docker info > /dev/null 2>&1; then \
	    docker build --build-arg OPERATOR=$(OPERATOR) --tag $(IMG) .; \
	else \
	    $(CLUSTERS) image build $(OPERATOR) $(IMG); \
	fi

docker-push: .venv ## Push IMG to its registry
	@if docker info > /dev/null 2>&1; then docker push $(IMG); else $(CLUSTERS) image push $(IMG); fi

push-images: .venv ## Build and push the images of all operators for CLUSTER=current (REGISTRY=registry.example.com/team, TAG)
	@case "$(REGISTRY)" in ""|local) echo "error: REGISTRY is '$(REGISTRY)', which names no registry"; \
	    echo "  fix: make push-images REGISTRY=registry.example.com/team"; exit 1;; esac
	@tag=$(or $(TAG),$$(sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)); \
	for operator in $(OPERATORS); do \
	    $(MAKE) --no-print-directory docker-build docker-push OPERATOR=$$operator IMG=$(REGISTRY)/$$operator-operator:$$tag; \
	done

# --take-ownership: releases keep their CRDs when uninstalled, so a CRD may still belong to another release.
deploy: .venv charts ## Install only this operator's chart, with the image IMG
	@! $(HELM) status platform --namespace $(NAMESPACE) > /dev/null 2>&1 || { \
	    echo "error: the release platform is installed; two operators would manage the same resources"; \
	    echo "  fix: $(HELM) uninstall platform --namespace $(NAMESPACE) (keeps resources and CRDs)"; exit 1; }
	@image=$(IMG); \
	$(HELM) upgrade --install $(OPERATOR)-operator charts/$(OPERATOR)-operator --namespace $(NAMESPACE) \
	    --create-namespace --take-ownership --force-conflicts --wait --timeout 2m --set image.repository=$${image%:*} --set image.tag=$${image##*:}

undeploy: .venv ## Remove what deploy installed; keeps the CRDs and all resources
	@$(HELM) uninstall $(OPERATOR)-operator --namespace $(NAMESPACE) --ignore-not-found

##@ Development environment

.venv: .venv/stamp ## Create the Python environment from the lock; updated when the lock changes

.venv/stamp: locks/dev.txt pyproject.toml
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "error: python3 is $$(python3 --version), but 3.11 or newer is required"; \
	    echo "  fix: install Python 3.11 or newer as python3"; exit 1; }
	@python3 -c 'import ensurepip' 2> /dev/null || { \
	    if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	        apt-get install -y --no-install-recommends python3-venv > /dev/null; \
	    else echo "error: python3 cannot create virtual environments"; \
	        echo "  fix: apt-get install python3-venv (as root)"; exit 1; fi; }
	@echo "==> creating .venv from locks/dev.txt"
	@[ -x $(PYTHON) ] || python3 -m venv .venv
	@awk '/^uv==/ {on = 1; print; next} on && /--hash/ {print; next} {on = 0}' locks/dev.txt > .venv/uv.txt
	@.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r .venv/uv.txt
	@.venv/bin/uv pip install --quiet --python $(PYTHON) --require-hashes --no-deps -r locks/dev.txt
	@for program in kubectl-platform:main kubectl_complete-platform:complete; do \
	    printf '#!/bin/sh\nPYTHONPATH=%s exec %s -c "from plugin.cli import %s as run; run()" "$$@"\n' \
	        '$(CURDIR)' '$(CURDIR)/$(PYTHON)' "$${program#*:}" > ".venv/bin/$${program%:*}"; \
	    chmod +x ".venv/bin/$${program%:*}"; \
	done
	@touch $@
