"""Builds the C extension onsoftmax._core; what else there is to say stands in pyproject.toml."""

import os
from glob import glob

import numpy
from setuptools import Extension, setup

# -ffp-contract=off: a * b + c stays two roundings where the code does not ask for one
flags = ["-std=c11", "-O3", "-ffp-contract=off", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra"]
flags += os.environ.get("ONSOFTMAX_CFLAGS", "").split()

setup(
    ext_modules=[
        Extension(
            "onsoftmax._core",
            sources=sorted(glob("csrc/*.c") + glob("csrc/cpu/*.c") + ["csrc/cuda/absent.c"] + glob("csrc/python/*.c")),
            depends=sorted(glob("csrc/**/*.h", recursive=True) + glob("csrc/*.def")),
            include_dirs=[numpy.get_include()],
            extra_compile_args=flags,
            extra_link_args=["-pthread", "-lm", *os.environ.get("ONSOFTMAX_LDFLAGS", "").split()],
        )
    ]
)
