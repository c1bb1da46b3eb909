"""What the tests of ahead-of-time compilation share."""

import pathlib
import sys

import pytest

from torch_tpu.aot import compiler

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "ops"))  # the databases' suite


@pytest.fixture(scope="session")
def libtpu():
    """Skips where the TPU compiler is not installed: it is proprietary, so nothing here asks for it."""
    try:
        return compiler.library_path()
    except ImportError as error:
        pytest.skip(str(error))
