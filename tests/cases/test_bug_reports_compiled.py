"""The cases of test_bug_reports.py under torch.compile.

A case is compiled as it stands: a graph ends where it asserts or reads a value, what lies between is compiled, and what
Dynamo cannot trace runs as ever. Each runs twice; `make test` takes every seventh case, `make test-all` all of them.
"""

import os

import pytest
from test_bug_reports import CASES

import torch

EVERY_CASE = os.environ.get("TTPU_TEST_ALL", "0") == "1"

# Cases that speak of the time after a compilation or start processes, which are compiled by themselves; and one of tied
# parameters (I07), which are no longer one object when the module is made in the compiled function.
BY_THEMSELVES = {"H03", "H05", "H07", "H09", "I01", "I05", "I07"}


@pytest.mark.parametrize(
    "report",
    [case for case in CASES if case.name not in BY_THEMSELVES][:: 1 if EVERY_CASE else 7],
    ids=lambda report: f"{report.name}-{report.run.__name__}",
)
def test_report(report, no_fallback):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()  # which a reset leaves
    compiled = torch.compile(report.run)
    for _ in range(2):
        compiled()
    counted = torch._dynamo.utils.counters
    assert counted["stats"]["unique_graphs"] > 0 or counted["graph_break"] or counted["unimplemented"]
