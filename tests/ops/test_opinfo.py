"""PyTorch's operator database on tpu: every operator, in eight dtypes, against the CPU.

One test per operator. What is known to differ stands in exceptions.py, which can only become shorter.
"""

import compare
import exceptions
import pytest

SAMPLES = {"float32": 3}  # others: 2
EXCEPTION_SAMPLES = 8  # how far to look for the sample that an exception is about
MOST_EXCEPTIONS = 15  # lower it with the list


def label(op) -> str:
    """The name that exceptions use: "add", "norm.nuc"."""
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


OPERATORS = {label(op): op for op in compare.select([])}


def dtypes_of(op) -> list[str]:
    """The dtypes that an operator's CPU kernels take, among those of the comparison."""
    return [name for name, dtype in compare.DTYPES.items() if dtype in op.supported_dtypes("cpu")]


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name):
    op = OPERATORS[name]
    known = [e for e in exceptions.EXCEPTIONS if e.operator == name]
    wrong, outcomes = [], {}
    for dtype in dtypes_of(op):
        matching = [e for e in known if e.dtypes == "*" or dtype in e.dtypes.split()]
        samples = EXCEPTION_SAMPLES if matching else SAMPLES.get(dtype, 2)
        verdict = compare.judge(op, compare.DTYPES[dtype], samples, gradients=True)
        outcomes[dtype] = verdict.outcome
        if verdict.outcome not in ("ok", "none") and not matching:
            wrong.append(f"{dtype}: {verdict.outcome}: {verdict.detail}")
    assert not wrong, "\n".join(wrong)
    for exception in known:
        listed = outcomes if exception.dtypes == "*" else exception.dtypes.split()
        agree = [dtype for dtype in listed if outcomes.get(dtype) == "ok"]
        if exception.dtypes == "*":  # some dtype must still differ
            agree = agree if len(agree) == len(outcomes) else []
        assert not agree, f"{name} agrees with the CPU in {', '.join(agree)}: take that out of exceptions.py"


def test_exceptions_name_operators_once():
    names = [e.operator for e in exceptions.EXCEPTIONS]
    assert sorted(set(names)) == sorted(names)
    assert set(names) <= set(OPERATORS)
    assert all(
        e.dtypes == "*" or set(e.dtypes.split()) <= set(dtypes_of(OPERATORS[e.operator])) for e in exceptions.EXCEPTIONS
    )


def test_exceptions_do_not_become_more():
    assert len(exceptions.EXCEPTIONS) <= MOST_EXCEPTIONS
