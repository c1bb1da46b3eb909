"""PyTorch's operator databases on tpu against the CPU: one test per operator, over dtypes and aspects (aspects.py).

`make test` runs a fixed sample of the cases (suite.is_quick), `make test-all` all of them. What is known to differ
stands in exceptions.py, which can only become shorter.

The cases are pytest's own parameters and not instantiate_device_type_tests': that makes a class of 60,000 tests whose
skips are spread over decorators of the databases, which name other devices; here an exception is a row of one list,
and the CPU is the reference in every case.
"""

import exceptions
import pytest
import suite

MOST_EXCEPTIONS = 24  # lower it with the list


@pytest.mark.parametrize("name", suite.OPERATORS)
def test_operator(name, record_property):
    wrong = []
    for dtype, aspect in suite.cases_of(suite.OPERATORS[name]):
        if exceptions.is_known(name, dtype, aspect):
            continue
        if suite.EVERYTHING or suite.is_quick(name, dtype, aspect):
            verdict = suite.judge(name, dtype, aspect, suite.limit_of(aspect, suite.EVERYTHING))
            record_property("compared", (aspect, verdict.outcome))
            if verdict.outcome not in ("ok", "none"):
                wrong.append(f"{dtype} {aspect}: {verdict.outcome}: {verdict.detail}")
    assert not wrong, "\n".join(wrong)


OF_OPERATORS = [e for e in exceptions.EXCEPTIONS if e.operator in suite.OPERATORS]


@pytest.mark.parametrize(
    "exception", [e for e in OF_OPERATORS if e.always], ids=lambda e: f"{e.operator} {e.dtypes} {e.aspects}"
)
def test_exception_still_differs(exception):
    """Each dtype and each aspect that an entry names has a case that differs."""
    unseen = set(exception.dtypes.split()) | set(exception.aspects.split())
    for dtype, aspect in suite.cases_of(suite.OPERATORS[exception.operator]):
        if not exception.covers(exception.operator, dtype, aspect):
            continue
        news = unseen & {dtype, aspect, "*"}
        if news and suite.judge(exception.operator, dtype, aspect, suite.limit_of(aspect, True)).is_different():
            unseen -= news
        if not unseen:
            return
    assert not unseen, f"{exception.operator} agrees with the CPU: take {sorted(unseen)} out of exceptions.py"


def test_exceptions_name_cases_that_exist():
    for e in OF_OPERATORS:
        cases = suite.cases_of(suite.OPERATORS[e.operator])
        dtypes, aspects = {d for d, _ in cases}, {a for _, a in cases}
        assert e.dtypes == "*" or set(e.dtypes.split()) <= dtypes, f"{e.operator}: {e.dtypes}"
        assert e.aspects == "*" or set(e.aspects.split()) <= aspects, f"{e.operator}: {e.aspects}"


def test_exceptions_do_not_become_more(record_property):
    record_property("exceptions", len(exceptions.EXCEPTIONS))
    assert len(exceptions.EXCEPTIONS) <= MOST_EXCEPTIONS


def test_no_exception_for_a_core_operator():
    """Core ATen operators are those that PyTorch tags so."""
    core = {str(op).split(".")[1] for op in suite.core_operators()}
    named = {e.operator for e in exceptions.EXCEPTIONS}
    assert named & core <= set()
