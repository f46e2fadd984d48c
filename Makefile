# `make help` lists the targets. PYTHON=... picks the interpreter.
PYTHON ?= python3
BENCH ?= --quick

SANITIZER ?= compute-sanitizer

C_FILES = $(shell git ls-files 'docs/*.c' 'csrc/*.c' 'csrc/*.h' 'csrc/*.cu' 'csrc/*.cuh')

ASAN_LIB := build/asan/lib
# Line numbers for the reports. No checks of pointers beside the address sanitizer's, and these as calls: each of the two
# would double the time to compile otherwise.
ASAN_FLAGS := -fsanitize=address,undefined -fno-sanitize=pointer-overflow,null,object-size \
    -fno-sanitize-recover=undefined --param=asan-instrumentation-with-call-threshold=0
ASAN_PRELOAD = $(foreach name,libasan.so libubsan.so libstdc++.so.6,$(shell gcc -print-file-name=$(name)))

SANITIZERS := memcheck racecheck initcheck synccheck

# The topics of long tests.
TOPICS := emulation errors nans valgrind lengths ranks sanitizers
TOPIC ?= $(TOPICS)
# The tests that run under the sanitizers. PYTEST="..." passes pytest more options.
TESTS ?= tests

# The wheels run on systems with this glibc and later: gcc compiles, zig links against the symbols of that glibc.
# -rtlib=none: exp, memcpy and others come from glibc and gcc, none from zig.
GLIBC := 2.17
LIBGCC = -L$(dir $(shell $*-linux-gnu-gcc -print-libgcc-file-name)) -l:libgcc_eh.a -l:libgcc.a

# How long `make soak` takes.
SECONDS ?= 60

.PHONY: help build test wheels soak check-long $(addprefix long-,$(TOPICS)) bench lint picker notebook site asan gpu-test gpu-sanitize $(SANITIZERS) clean

help:
	@echo 'make build   install in place (editable), with what the tests need'
	@echo 'make test    all tests'
	@echo 'make check-long  what takes long; TOPIC="..." chooses of: $(TOPICS)'
	@echo 'make wheels  the wheels for x86-64 (with CUDA; ONSOFTMAX_CUDA=0: without) and aarch64 in dist/, checked;'
	@echo '             from: pip install -e ".[wheels]"'
	@echo 'make soak    random calls of every function for SECONDS (60), with faults around them, checked'
	@echo 'make bench   the CPU benchmark; BENCH="..." passes it arguments (default: --quick)'
	@echo 'make lint    ruff, mypy, pyright and clang-format, from: pip install -e ".[lint]"'
	@echo 'make picker  docs/picker.html, from the planner as it is now: pip install -e ".[picker]"'
	@echo 'make notebook  brings the outputs of docs/onsoftmax.ipynb up to date, from: pip install -e ".[docs]"'
	@echo 'make site    the documents as a web site in build/site/html, from: pip install -e ".[site]"'
	@echo 'make asan    the tests, or TESTS="...", under the address and undefined-behaviour sanitizers (gcc)'
	@echo 'make gpu-test      the tests that need a GPU'
	@echo 'make gpu-sanitize  the small ones of them under compute-sanitizer (SANITIZER=path); one of its'
	@echo '                   tools alone: make memcheck, racecheck, initcheck, synccheck'
	@echo 'make clean   remove what was built'

build:
	$(PYTHON) -m pip install -e '.[test]'

test:
	$(PYTHON) -m pytest

wheels: wheel-x86_64 wheel-aarch64

wheel-x86_64: export ONSOFTMAX_CUDA ?= 1
# Machine code for the GPUs that people have, and PTX that the drivers of all others compile.
wheel-x86_64: export ONSOFTMAX_CUDA_ARCHS ?= 75-virtual;80-real;90-real;100-real;120-real
# The module is a quarter smaller, and nvcc takes an eighth longer. All drivers of CUDA 13 know this mode.
wheel-x86_64: export NVCC_APPEND_FLAGS := -compress-mode=size $(NVCC_APPEND_FLAGS)
wheel-aarch64: export ONSOFTMAX_CUDA = 0

# The last step needs them too. Without this check the build would fail after it has compiled everything.
TO_HAVE_WHEEL_TOOLS = Run pip install -e '.[wheels]' in an environment whose bin folder is on PATH; docs/building.md has the compilers.

# Python's headers are the same for both machines, but Debian's are in a folder with the machine's name.
wheel-%:
	@for tool in $*-linux-gnu-gcc patchelf; do command -v $$tool > /dev/null || { \
	    echo "make $@ needs $$tool on PATH, and it is not there. $(TO_HAVE_WHEEL_TOOLS)" >&2; exit 1; }; done
	@for module in setuptools numpy ziglang auditwheel elftools abi3info; do $(PYTHON) -c "import $$module" || { \
	    echo "make $@ needs the module $$module in $(PYTHON). $(TO_HAVE_WHEEL_TOOLS)" >&2; exit 1; }; done
	rm -rf build/wheel-$* dist/onsoftmax-*_$*.whl
	mkdir -p build/wheel-$*/include
	ln -s /usr/include/x86_64-linux-gnu build/wheel-$*/include/$*-linux-gnu
	$*-linux-gnu-gcc -O2 -fPIC -fvisibility=hidden -c csrc/cuda/driver/old_glibc.c -o build/wheel-$*/old_glibc.o
	CC=$*-linux-gnu-gcc CFLAGS='-I$(CURDIR)/build/wheel-$*/include' \
	    LDSHARED='$(PYTHON) -m ziglang cc -target $*-linux-gnu.$(GLIBC) -rtlib=none -shared -s' \
	    ONSOFTMAX_LDFLAGS='$(ONSOFTMAX_LDFLAGS) build/wheel-$*/old_glibc.o $(LIBGCC)' \
	    $(PYTHON) -W ignore setup.py -q build --build-base build/wheel-$* bdist_wheel --plat-name linux_$* --dist-dir build/wheel-$*
	$(PYTHON) -m auditwheel repair --plat auto --wheel-dir dist build/wheel-$*/*.whl
	$(PYTHON) tests/tools/wheel.py dist/onsoftmax-*_$*.whl $(WHEEL_CHECKS)

soak:
	$(PYTHON) tests/support/soak.py --seconds $(SECONDS)

check-long: $(addprefix long-,$(TOPIC))

$(addprefix long-,$(filter-out sanitizers,$(TOPICS))): long-%:
	$(PYTHON) -m pytest -o faulthandler_timeout=2000 --long $*

long-sanitizers: asan

bench:
	$(PYTHON) benchmarks/bench_cpu.py $(BENCH)

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(PYTHON) -m mypy --strict tests/python/typing_examples.py
	$(PYTHON) -m pyright tests/python/typing_examples.py
	clang-format --dry-run -Werror $(C_FILES)

picker:
	$(PYTHON) docs/make_picker.py

site:
	$(PYTHON) docs/make_site.py

notebook:
	$(PYTHON) docs/make_notebook.py

# A build of its own. The tests' C programs link its objects instead of compiling them again (ONSOFTMAX_OBJECTS).
# Python finds this build first from its working directory. libstdc++ is
# loaded early for torch and JAX, which throw C++ exceptions that the sanitizer's library must see.
asan:
	$(PYTHON) -m pip install -q 'setuptools>=77'
	ONSOFTMAX_CUDA=0 ONSOFTMAX_CFLAGS='-g1 -O1 -fno-omit-frame-pointer $(ASAN_FLAGS)' ONSOFTMAX_LDFLAGS='$(ASAN_FLAGS)' \
	    $(PYTHON) setup.py -q build --build-base build/asan --build-lib $(ASAN_LIB)
	cd $(ASAN_LIB) && ONSOFTMAX_OBJECTS="$$(echo '$(CURDIR)'/build/asan/temp.*)" LD_PRELOAD='$(ASAN_PRELOAD)' PYTHONPATH='$(CURDIR)/$(ASAN_LIB)' PYTHONMALLOC=malloc \
	    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
	    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	    $(PYTHON) -m pytest -c '$(CURDIR)/pyproject.toml' -p no:cacheprovider -o faulthandler_timeout=2000 \
	    $(addprefix '$(CURDIR)'/,$(TESTS)) $(PYTEST)

gpu-test:
	$(PYTHON) -m pytest -rs tests/gpu

# Without torch's cache each array is an allocation of its own, so an access past its end is found. A finding, a
# failed test and a program that never reached the GPU are each a failure.
gpu-sanitize: $(SANITIZERS)

# synccheck follows more mbarriers than its default allows.
synccheck: SANITIZER_OPTIONS = --num-cuda-barriers 65536

$(SANITIZERS):
	PYTORCH_NO_CUDA_MEMORY_CACHING=1 $(SANITIZER) --tool $@ $(SANITIZER_OPTIONS) --error-exitcode 1 --print-limit 20 \
	    $(PYTHON) -m pytest -p no:cacheprovider -m small tests/gpu

clean:
	rm -rf build dist *.egg-info onsoftmax/_core.*.so
