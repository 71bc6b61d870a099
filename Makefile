# Two commands on a fresh clone do everything: `make run` and `make test`.
VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
STAMP  := $(VENV)/.installed
# What running needs is half of what developing needs: `make run` has a smaller environment, unless
# the other one is there.
RUN    := $(if $(wildcard $(STAMP)),$(VENV),.venv-run)

.PHONY: run test test-fast torture bench check format golden results figures tutorials docs wheel dist clean

run: $(RUN)/.installed  ## train DeepCCG, ER and SGD online on the embedded digits, and report them
	$(RUN)/bin/deepccg run --method deepccg,er,sgd --dataset digits --seeds 0-2 --out runs/
	$(RUN)/bin/deepccg report runs/ --out runs/report.html

test: $(STAMP)  ## everything, in parallel
	$(BIN)/pytest -n auto --dist worksteal

test-fast: $(STAMP)  ## the inner loop
	$(BIN)/pytest -n auto --dist worksteal -m "not slow"

torture: $(STAMP)  ## 500 kills of runs, 500 of saves, 2,000 mutated files, 10,000 calls from threads, fuzzing
	$(BIN)/python benchmarks/torture.py --kills 500 --saves 500 --files 2000 --threads 10000 --fuzz 2000

bench: $(STAMP)  ## what a step costs, beside hand-written references and the machine's peak
	$(BIN)/python benchmarks/bench.py

check: $(STAMP)  ## lint, format, types, layers, links, workflows, doctests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/pytest tests/package/test_documents.py tests/package/test_site.py -m "not slow"
	$(BIN)/pytest --doctest-modules src/deepccg --doctest-glob='*.md' README.md CONTRIBUTING.md docs

format: $(STAMP)  ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: $(STAMP)  ## write tests/methods/golden.json anew; say why in CHANGELOG.md
	$(BIN)/python tests/methods/test_golden.py

results: $(STAMP)  ## write docs/results.md, docs/results/ and their figures from benchmarks/runs.jsonl
	$(BIN)/python benchmarks/results.py

figures: $(STAMP)  ## draw the figures of docs/how_it_works.md, the demo in it and the README's animation
	$(BIN)/python benchmarks/how_it_works_figures.py
	$(BIN)/python benchmarks/demo_animation.py
	$(BIN)/deepccg demo --out docs/_static/demo.html

tutorials: $(STAMP)  ## execute the notebooks of docs/tutorials and store what they print
	$(BIN)/python benchmarks/tutorials.py

docs: $(STAMP)  ## build the site into build/docs, to be opened from there; warnings are errors
	$(BIN)/sphinx-build -W --keep-going -q -E -j auto -b html -d build/doctrees docs build/docs

wheel: $(STAMP)  ## build the wheel into dist/, with compiled kernels if there is a compiler
	$(BIN)/python -m build --wheel

# An index takes no wheel that was compiled for this machine alone: the one it gets carries no kernels.
dist: $(STAMP)  ## build what a release uploads into dist/: the sources, and a wheel for all platforms
	rm -rf build/lib build/bdist.* dist
	PATH= CXX= $(abspath $(BIN))/python -m build

clean:  ## remove the environments and everything built
	rm -rf $(VENV) .venv-run build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(STAMP): EXTRAS := [dev]

# Python compiles a module when it is first imported: most are never.
%/.installed: pyproject.toml $(CONSTRAINTS)
	test -x $*/bin/python || $(PYTHON) -m venv $*
	$*/bin/python -m pip install --quiet --no-compile --constraint $(CONSTRAINTS) --editable '.$(EXTRAS)'
	touch $@
