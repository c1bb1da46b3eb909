"""What the tests of ahead-of-time compilation share."""

import pathlib
import sys

import pytest

from torch_tpu.aot import compiler

for folder in ("", "ops"):  # the tiny models, and the databases' suite
    sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / folder))


@pytest.fixture(scope="session")
def libtpu():
    """Skips where the TPU compiler is not installed: it is proprietary, so nothing here asks for it."""
    try:
        return compiler.library_path()
    except ImportError as error:
        pytest.skip(str(error))
