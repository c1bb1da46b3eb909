"""Runs JAX's own cases of its primitives on the software TPU and compares with JAX on the CPU.

The cases are in the jax wheel (jax._src.internal_test_util.test_harnesses): 5,594 over 132 primitives in 0.10.2, 7,526
with --x64. Each is compiled and run on both platforms of one process; results must have the same shape and dtype, and
be equal for integers and bool, near for floats: |a - b| <= tolerance * max(1, largest |b|), by dtype as below.
Products are asked for in full precision (jax_default_matmul_precision): a TPU's default is one pass of bfloat16.

    python tests/interop/harness.py --out results.jsonl [--x64] [--every 20] [--workers 2] [--only cumsum] [--summary]

The cases go to worker processes, which append a line a case to results.jsonl.<worker>; a case that takes too long or
ends its process counts as failed and the next one runs in a new process. Run again with the same --out, it goes on
where it stopped. At the end comes a table of what differs, by reason, and `N equal of M`: M are the cases that run on
JAX's CPU.

Needs jax (a virtual environment of its own will do), absl-py and the plugin; nothing of PyTorch is imported.
"""

import argparse
import collections
import json
import os
import re
import select
import subprocess
import sys
import time
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
TOLERANCE = {
    "bfloat16": 1e-2,
    "float16": 1e-3,
    "float32": 1e-5,
    "complex64": 1e-5,
    "float64": 1e-12,
    "complex128": 1e-12,
}


# ---- a worker: cases in, a line of JSON for each out ---------------------------------------------------------------


def difference(a, b) -> str:
    """Why a is not b; empty when it is."""
    import numpy as np

    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
    if a.size == 0:
        return ""
    tolerance = TOLERANCE.get(b.dtype.name, 0.13 if b.dtype.name.startswith("float8") else 0)
    if tolerance == 0:
        wrong = a != b
        return f"{np.count_nonzero(wrong)} of {a.size} elements differ" if wrong.any() else ""
    wide = np.complex128 if b.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(b)
    largest = np.abs(b[finite]).max(initial=1)
    with np.errstate(invalid="ignore"):
        wrong = ~same & ~(np.abs(a - b) <= tolerance * largest)
    if not wrong.any():
        return ""
    with np.errstate(invalid="ignore"):
        worst = np.nanmax(np.where(wrong, np.abs(a - b), 0)) / largest
    at = np.unravel_index(np.argmax(wrong), wrong.shape)
    return f"{np.count_nonzero(wrong)} of {a.size} elements are off, by up to {worst:.1e}: {a[at]} instead of {b[at]}"


def comparable(group: str, results: list) -> list:
    """What of the results the primitive defines: the rest is any platform's own."""
    import numpy as np

    def adjoint(x):
        return np.conj(np.swapaxes(x, -1, -2))

    if group == "cholesky":  # what is above the diagonal is nobody's business
        return [np.tril(x) for x in results]
    if group == "eigh" and len(results) == 2:  # eigenvectors are so up to a factor
        vectors, values = results
        return [values, vectors * values[..., None, :] @ adjoint(vectors), adjoint(vectors) @ vectors]
    if group == "svd" and len(results) == 3:  # as are singular ones
        values, left, right = results
        k = values.shape[-1]
        whole = left[..., :k] * values[..., None, :] @ right[..., :k, :]
        return [values, whole, adjoint(left) @ left, right @ adjoint(right)]
    return results


def run_case(jax, harness) -> dict:
    import numpy as np

    def run(platform):
        device = jax.devices(platform)[0]
        with jax.default_device(device):
            arguments = [jax.device_put(x, device) for x in harness.dyn_args_maker(np.random.RandomState(0))]
            results = jax.jit(harness.dyn_fun)(*arguments)
            return [np.asarray(x) for x in jax.tree.leaves(results) if hasattr(x, "dtype") and x.dtype.kind != "V"]

    try:
        want = run("cpu")
    except Exception as error:
        return {"outcome": "not on cpu", "reason": reason_of(error)}
    try:
        got = run("ttpu")
    except Exception as error:
        return {"outcome": "error", "reason": reason_of(error)}
    got, want = comparable(harness.group_name, got), comparable(harness.group_name, want)
    if len(got) != len(want):
        return {"outcome": "different", "reason": f"{len(got)} results instead of {len(want)}"}
    differences = [d for d in map(difference, got, want) if d]
    return {"outcome": "different" if differences else "equal", "reason": "; ".join(differences)}


def reason_of(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


def cases(platforms: str, x64: bool) -> list:
    """All of JAX's cases: those that it defines for a CPU, whatever the platforms."""
    os.environ["JAX_PLATFORMS"] = platforms
    os.environ["JAX_ENABLE_X64"] = str(int(x64))
    os.environ["JAX_TEST_DUT"] = "cpu"
    from jax._src.internal_test_util import test_harnesses

    return test_harnesses.all_harnesses


def work(x64: bool) -> None:
    """Numbers of cases come on stdin, a line each."""
    os.environ.setdefault("PJRT_NAMES_AND_LIBRARY_PATHS", f"ttpu:{TREE}/torch_tpu/lib/libttpu_soft.so")
    all_cases = cases("ttpu,cpu", x64)
    import jax

    jax.config.update("jax_default_matmul_precision", "highest")
    print(json.dumps({"count": len(all_cases)}), flush=True)
    for line in sys.stdin:
        number = int(line)
        harness = all_cases[number]
        start = time.monotonic()
        result = run_case(jax, harness)
        result |= {"number": number, "group": harness.group_name}
        print(json.dumps(result | {"seconds": round(time.monotonic() - start, 3)}), flush=True)


# ---- the parent -----------------------------------------------------------------------------------------------------


class Worker:
    """A worker process, made again when it dies or hangs."""

    def __init__(self, limit: float, x64: bool):
        self.limit = limit
        self.arguments = [sys.executable, __file__, "--worker"] + ["--x64"] * x64
        self.process = None

    def ask(self, question: str | None, limit: float) -> dict | None:
        """Its next line; None when it ended or took too long."""
        if question is not None:
            self.process.stdin.write(question + "\n")
            self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], limit)
        line = self.process.stdout.readline() if ready else ""
        return json.loads(line) if line.endswith("\n") else None

    def start(self) -> int:
        self.process = subprocess.Popen(
            self.arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        first = self.ask(None, 600)
        if first is None:
            sys.exit("a worker did not start; is jax here?")
        return first["count"]

    def run(self, number: int) -> dict:
        if self.process is None:
            self.start()
        try:
            result = self.ask(str(number), self.limit)
        except BrokenPipeError:
            result = None
        if result is not None:
            return result
        code = self.process.poll()
        self.stop()
        reason = f"took more than {self.limit:g} s" if code is None else f"the process ended with {code}"
        return {"outcome": "crash" if code is not None else "slow", "reason": reason, "number": number}

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.process = None


def known(out: Path) -> dict[int, dict]:
    results = {}
    for path in sorted(out.parent.glob(out.name + "*")):
        for line in path.read_text().splitlines():
            result = json.loads(line)
            results[result["number"]] = result
    return results


def summarize(results: dict[int, dict]) -> None:
    runs = [r for r in results.values() if r["outcome"] != "not on cpu"]
    groups = collections.defaultdict(list)
    for result in runs:
        if result["outcome"] != "equal":
            reason = re.sub(r"-?\d[\d.e+-]*", "N", result["reason"])[:140]
            groups[result["outcome"], reason].append(result["name"])
    for (outcome, reason), names in sorted(groups.items(), key=lambda item: -len(item[1])):
        print(f"{len(names):5}  {outcome}: {reason}\n       {', '.join(names[:3])}")
    equal = sum(r["outcome"] == "equal" for r in runs)
    print(f"{len(results) - len(runs)} cases do not run on JAX's CPU either")
    print(f"{equal} equal of {len(runs)} ({100 * equal / max(1, len(runs)):.1f}%)")


def drive(options, numbers: list[int], names: list[str]) -> None:
    """One process a slice: this one's workers share nothing but the list."""
    worker = Worker(options.limit, options.x64)
    with open(f"{options.out}.{options.slice}", "a") as file:
        for number in numbers[options.slice :: options.workers]:
            file.write(json.dumps(worker.run(number) | {"name": names[number]}) + "\n")
            file.flush()
    worker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="harness.jsonl", help="results, one line of JSON a case")
    parser.add_argument("--x64", action="store_true", help="with 64-bit types (jax_enable_x64)")
    parser.add_argument("--every", type=int, default=1, help="only every n-th case")
    parser.add_argument("--offset", type=int, default=0)
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--again", default="", help="run cases of this outcome again: error, different, crash, slow")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--limit", type=float, default=120, help="seconds a case may take")
    parser.add_argument("--summary", action="store_true", help="only print what is known")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--slice", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options.x64)
    results = known(Path(options.out))
    if not options.summary:
        again = options.again.split(",") if options.again else []
        names = [case.fullname for case in cases("cpu", options.x64)]
        numbers = [
            n
            for n in range(options.offset, len(names), options.every)
            if (n not in results or results[n]["outcome"] in again) and options.only in names[n]
        ]
        if options.slice is not None:
            return drive(options, numbers, names)
        slices = [subprocess.Popen([sys.executable, *sys.argv, "--slice", str(i)]) for i in range(options.workers)]
        for process in slices:
            process.wait()
        results = known(Path(options.out))
    summarize(results)


if __name__ == "__main__":
    main()
