"""PyTorch's modules and optimizers on tpu against the CPU; modules.py says what is compared."""

import exceptions
import modules
import pytest
import suite
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

import torch

MODULES = {info.name: info for info in module_db}
OPTIMIZERS = {f"optim.{info.optim_cls.__name__}": info for info in optim_db}
OPTIMIZER_DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.complex64]
CHAOTIC = (torch.optim.LBFGS,)  # rounding grows from step to step: in double precision only


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).split(".")[1]


def module_dtypes(info) -> list[torch.dtype]:
    """The database's among those of the suite, without complex32 (three transposed convolutions)."""
    known = [d for d in info.dtypes if name_of(d) in suite.DTYPES and d != torch.complex32]
    return known if suite.EVERYTHING else [torch.float32]


@pytest.mark.parametrize("name", MODULES)
def test_module(name, record_property):
    info = MODULES[name]
    for dtype in module_dtypes(info):
        if exceptions.is_known(name, name_of(dtype), "module"):
            continue
        for training in (True, False) if suite.EVERYTHING or info.train_and_eval_differ else (True,):
            compared = modules.check_module(info, dtype, training, 1000 if suite.EVERYTHING else 2)
            record_property("compared", ("module", "ok" if compared else "none"))


@pytest.mark.parametrize("name", [n for n, info in MODULES.items() if info.module_error_inputs_func])
def test_module_errors(name):
    for training in (True, False):
        modules.check_module_errors(MODULES[name], torch.float32, training)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer(name, record_property):
    info = OPTIMIZERS[name]
    for dtype in OPTIMIZER_DTYPES if suite.EVERYTHING else OPTIMIZER_DTYPES[:2]:
        if exceptions.is_known(name, name_of(dtype), "optimizer") or (dtype.is_complex and not info.supports_complex):
            continue
        if info.optim_cls in CHAOTIC and dtype != torch.float64:
            continue
        compared = modules.check_optimizer(info, dtype)
        record_property("compared", ("optimizer", "ok" if compared else "none"))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_errors(name):
    modules.check_optimizer_errors(OPTIMIZERS[name], torch.float32)


OF_THESE = [e for e in exceptions.EXCEPTIONS if e.operator in MODULES or e.operator in OPTIMIZERS]


@pytest.mark.parametrize("exception", OF_THESE, ids=lambda e: e.operator)
def test_exception_still_differs(exception):
    dtype = torch.float32 if exception.dtypes == "*" else getattr(torch, exception.dtypes.split()[0])
    with pytest.raises((AssertionError, NotImplementedError)):
        if exception.operator in MODULES:
            modules.check_module(MODULES[exception.operator], dtype, True, 1000)
        else:
            modules.check_optimizer(OPTIMIZERS[exception.operator], dtype)


def test_exceptions_name_what_exists():
    known = {*suite.OPERATORS, *MODULES, *OPTIMIZERS}
    assert {e.operator for e in exceptions.EXCEPTIONS} <= known
