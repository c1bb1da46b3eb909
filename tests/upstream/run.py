"""Runs PyTorch's own device-generic test files on cpu and on tpu, and lists what passes on cpu and not on tpu.

    python tests/upstream/run.py PATH [FILES ...]

PATH is the `test/` folder of any PyTorch source tree. It may be of another version than the installed torch: a test
counts only if it passes on cpu, and only such tests run on tpu. A test that skips itself on tpu (made for the CPU
alone), or that exists for cpu alone, has no counterpart and is not counted; a crash or a timeout counts as a failure.

The exit status is 1 where fewer than --at-least per cent of what passes on cpu passes on tpu.
"""

import argparse
import collections
import dataclasses
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILES = """test_view_ops test_indexing test_shape_ops test_tensor_creation_ops test_type_promotion test_sort_and_select
test_scatter_gather_ops test_reductions test_segment_reductions test_spectral_ops test_masked test_torch test_nn
test_binary_ufuncs test_unary_ufuncs test_linalg test_modules test_ops test_autograd test_foreach test_optim""".split()
LARGE = "64bit_indexing|_large_"
SUFFIXES = {"cpu": "CPU", "tpu": "PRIVATEUSE1"}
# What the errors of tests on layouts that tpu does not have name (docs/operators.md: unsupported)
LAYOUTS = re.compile(r"sparse|quantized|quantize_per|NestedTensor|mkldnn", re.IGNORECASE)


@dataclasses.dataclass
class Run:
    """What became of the tests of one file on one device."""

    results: dict[str, dict]  # by the test's name without its device: test (its full name), outcome, message
    problem: str = ""  # why the file, or the rest of it, did not run


@dataclasses.dataclass
class Comparison:
    """One file on both devices."""

    name: str
    cpu: Run
    tpu: Run

    def counted(self) -> dict[str, str]:
        """What passes on cpu and has a counterpart on tpu: the test's key and its outcome there."""
        counted = {}
        for key, result in self.cpu.results.items():
            if result["outcome"] != "passed":
                continue
            there = self.tpu.results.get(key)
            if there is None and self.tpu.problem:
                counted[key] = "failed"
            elif there is not None and there["outcome"] != "skipped":
                counted[key] = there["outcome"]
        return counted

    def failures(self) -> list[tuple[str, str]]:
        """Each test that passes on cpu and fails on tpu, with the first line of its error."""
        unknown = {"message": self.tpu.problem}
        rows = []
        for key, outcome in self.counted().items():
            if outcome == "failed":
                there = self.tpu.results.get(key, unknown)
                rows.append((there.get("test", f"{self.name}::{key}"), there["message"]))
        return rows

    def of_layouts(self) -> int:
        """How many of the failures come from a layout that tpu does not have."""
        return sum(bool(LAYOUTS.search(message)) for _, message in self.failures())

    def skipped(self) -> collections.Counter:
        """The reasons of what passes on cpu and skips itself on tpu."""
        passed = (key for key, result in self.cpu.results.items() if result["outcome"] == "passed")
        there = (self.tpu.results.get(key) for key in passed)
        return collections.Counter(result["message"] for result in there if result and result["outcome"] == "skipped")


def read_results(path: Path) -> Run:
    """The JSON lines that upstream_plugin.py wrote."""
    run = Run({})
    for line in path.read_text().splitlines() if path.exists() else []:
        result = json.loads(line)
        if "collect" in result:
            run.problem = result["message"]
        else:
            run.results[result.pop("key")] = result
    return run


def pytest_command(options, file: Path) -> list[str]:
    """The call of pytest for one file: nothing of the tree's own configuration, nothing written into the tree."""
    command = [sys.executable, "-m", "pytest", str(file), f"--rootdir={options.path}", "-c", os.devnull]
    command += ["--noconftest", "-p", "no:cacheprovider", "-p", "upstream_plugin", "-q", "-W", "ignore"]
    # Other forms of tracebacks parse the whole file for each frame: minutes a failure in files of 15,000 lines.
    command += ["--tb=native"]
    # A worker that crashes fails the test that it ran, and another takes its place.
    command += ["-n", str(options.jobs), "--dist=worksteal", "--max-worker-restart=100000"]
    # First an exception in the test; where that is not possible, in the middle of C code, the end of the worker.
    command += [f"--timeout={options.timeout}", "--timeout-method=signal"]
    command += ["-o", f"faulthandler_timeout={options.timeout + 30}", "-o", "faulthandler_exit_on_timeout=true"]
    return command


def run_file(options, name: str, device: str, choice: list[str] | None = None) -> Run:
    """Run one file on one device, all of it or the chosen keys alone."""
    with tempfile.TemporaryDirectory() as folder:
        results, chosen = Path(folder, "results"), Path(folder, "choice")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE), os.environ.get("PYTHONPATH", "")]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",  # workers must collect sets in one order
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
            "PYTORCH_TESTING_DEVICE_ONLY_FOR": SUFFIXES[device].lower(),
            "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // options.jobs)),
            "UPSTREAM_SUFFIX": SUFFIXES[device],
            "UPSTREAM_RESULTS": str(results),
            "UPSTREAM_WITHOUT": options.without,
            "UPSTREAM_PART": options.part,
        }
        if choice is not None:
            chosen.write_text("\n".join(choice))
            environment["UPSTREAM_CHOICE"] = str(chosen)
        command = pytest_command(options, options.path / name)
        if choice is None and options.k:
            command += ["-k", options.k]
        log = Path(options.logs, f"{Path(name).stem}.{device}.log") if options.logs else Path(folder, "log")
        with open(log, "w") as output:
            done = subprocess.run(command, env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        run = read_results(results)
        if done.returncode not in (0, 1, 5) and not run.problem:  # 5: no test of this name
            tail = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
            run.problem = f"pytest stopped with status {done.returncode}: {''.join(tail)}"
        return run


def compare_file(options, name: str, earlier: dict, baseline: dict) -> Comparison:
    """Run one file on both devices; with an earlier report only what failed on tpu, with a baseline not on cpu."""
    if earlier:
        cpu, tpu = Run(**earlier["cpu"]), Run(**earlier["tpu"])
        before = Comparison(name, cpu, tpu).counted()
        keys = [key for key, outcome in before.items() if outcome == "failed"]
    else:
        cpu, tpu = Run(**baseline["cpu"]) if baseline else run_file(options, name, "cpu"), Run({})
        keys = [key for key, result in cpu.results.items() if result["outcome"] == "passed"]
    if keys:
        now = run_file(options, name, "tpu", keys)
        tpu = Run(tpu.results | now.results, now.problem)
    return Comparison(name, cpu, tpu)


def share(passed: int, all_of_them: int) -> float:
    """Per cent, rounded down: 100.00 means all."""
    return 100.0 if all_of_them == 0 else passed * 10000 // all_of_them / 100


def figures(counted: list[str]) -> str:
    """The columns of the summary."""
    passed = counted.count("passed")
    return f"{len(counted):>8}{passed:>8}{share(passed, len(counted)):>9.2f}"


def print_file(comparison: Comparison) -> None:
    """The tests of one file that fail on tpu alone."""
    for test, message in comparison.failures():
        print(f"{test}\n    {message}")
    for device in SUFFIXES:
        problem = getattr(comparison, device).problem
        if problem:
            print(f"{comparison.name} on {device}: {problem}")


def print_summary(comparisons: list[Comparison]) -> float:
    """A line a file and one for all; the share of all."""
    skipped = sum((comparison.skipped() for comparison in comparisons), collections.Counter())
    print(f"\n{'passed on':<40}{'cpu':>8}{'tpu':>8}{'%':>9}{'layouts':>9}{'skipped':>9}")
    for comparison in comparisons:
        counted = list(comparison.counted().values())
        print(f"{comparison.name:<40}{figures(counted)}{comparison.of_layouts():>9}{comparison.skipped().total():>9}")
    everything = [outcome for comparison in comparisons for outcome in comparison.counted().values()]
    layouts = sum(comparison.of_layouts() for comparison in comparisons)
    print(f"{'all':<40}{figures(everything)}{layouts:>9}{skipped.total():>9}")
    passed, dense = everything.count("passed"), len(everything) - layouts
    print(f"without sparse, quantized and nested layouts: {passed} of {dense}, {share(passed, dense):.2f} %")
    for reason, count in skipped.most_common(10):
        print(f"    skipped {count}: {reason}")
    return share(everything.count("passed"), len(everything))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the test/ folder of a PyTorch source tree")
    parser.add_argument("files", nargs="*", default=FILES, help="test_view_ops, nn/test_pooling.py, ...; default: 21")
    parser.add_argument("-k", help="only these tests: pytest's expression, over the names of the cpu run")
    parser.add_argument("--part", default="0/1", help="i/n: of all tests one in n, chosen by a hash of their names")
    parser.add_argument("--json", type=Path, help="write what became of each test")
    parser.add_argument(
        "--again", type=Path, help="run only what failed on tpu according to this earlier --json report"
    )
    parser.add_argument("--baseline", type=Path, help="take the cpu's results from this earlier --json report")
    parser.add_argument(
        "--without",
        default=LARGE,
        help=f"leave out tests whose names match, as they need too much memory; default: {LARGE}",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; default: one a core")
    parser.add_argument("--timeout", type=int, default=120, help="seconds for one test; default: 120")
    parser.add_argument("--logs", type=Path, help="keep pytest's output, with tracebacks, in this folder")
    parser.add_argument("--at-least", type=float, default=99.5, help="per cent; default: 99.5")
    options = parser.parse_intermixed_args(arguments)
    options.path = options.path.resolve()
    options.files = [name if name.endswith(".py") else f"{name}.py" for name in options.files]
    if options.logs:
        options.logs = options.logs.resolve()
        options.logs.mkdir(parents=True, exist_ok=True)
    for name in options.files:
        if not (options.path / name).is_file():
            parser.error(f"no file {options.path / name}")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run, list, sum up."""
    options = parse(arguments)
    earlier = json.loads(options.again.read_text())["files"] if options.again else {}
    baseline = json.loads(options.baseline.read_text())["files"] if options.baseline else {}
    comparisons = []
    for name in options.files:
        start = time.monotonic()
        comparison = compare_file(options, name, earlier.get(name, {}), baseline.get(name, {}))
        counted = list(comparison.counted().values())
        print(f"== {name}: {counted.count('passed')} of {len(counted)}, {time.monotonic() - start:.0f} s", flush=True)
        print_file(comparison)
        comparisons.append(comparison)
        if options.json:  # after each file: a long run may be interrupted
            files = {c.name: {"cpu": dataclasses.asdict(c.cpu), "tpu": dataclasses.asdict(c.tpu)} for c in comparisons}
            options.json.write_text(
                json.dumps({"torch": importlib.metadata.version("torch"), "files": files}, indent=1)
            )
    return 0 if print_summary(comparisons) >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
