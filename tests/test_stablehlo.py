"""``ttpu check-stablehlo`` over our own small set, in both executors; and what it says when something is wrong."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parent / "stablehlo"


def check(*arguments: str, executor: str = "") -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "torch_tpu.cli", "check-stablehlo", *map(str, arguments)]
    environment = {**os.environ, "TTPU_SOFT": executor}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)


@pytest.mark.parametrize("executor", ["", "reference"])
def test_our_cases_pass(executor):
    done = check(CASES, "--json", executor=executor)
    report = json.loads(done.stdout)
    assert not [case for case in report["cases"] if case["stage"] != "passed"]
    assert done.returncode == 0 and report["failed"] == 0 and report["passed"] == len(report["cases"]) > 25
    assert {case["kind"] for case in report["cases"]} == {"run", "refuse"}


def test_refusals_say_what_is_wrong():
    parts = re.split(r"^// -----$", (CASES / "refused.mlir").read_text(), flags=re.MULTILINE)
    cases = json.loads(check(CASES / "refused.mlir", "--json").stdout)["cases"]
    assert len(cases) == len(parts)
    for case, part in zip(cases, parts, strict=True):
        expected = re.search(r"expected-error@\+1 \{\{(.*)\}\}", part)[1]
        assert expected in case["message"], case


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("check.expect_eq_const %0, dense<[1, 3]> : tensor<2xi32>", "values: line: N of N elements of iN differ"),
        ("check.expect_eq_const %0, dense<[1.0, 2.0]> : tensor<2xf32>", "read: line, check.expect_eq_const"),
        (
            "check.expect_close %0, %9 : tensor<2xi32>, tensor<2xi32>",
            "read: line, check.expect_close: %N is not defined",
        ),
    ],
)
def test_failures_are_told(tmp_path, body, reason):
    path = tmp_path / "case.mlir"
    path.write_text(
        f"func.func @f() {{\n  %0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>\n  {body}\n  return\n}}\n"
    )
    done = check(path)
    assert done.returncode == 1
    assert reason in done.stdout
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed"


def test_what_should_be_refused_and_is_not_fails(tmp_path):
    path = tmp_path / "case.mlir"
    path.write_text("func.func @f() {\n  // expected-error@+1 {{anything}}\n  return\n}\n")
    done = check(path)
    assert done.returncode == 1 and "accepted: @f: anything" in done.stdout


def test_a_path_that_does_not_exist(tmp_path):
    done = check(tmp_path / "nothing")
    assert done.returncode != 0 and "does not exist" in done.stderr
