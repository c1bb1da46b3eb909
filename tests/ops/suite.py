"""Which comparisons there are, what became of one, and which run when.

A *case* is an operator of PyTorch's databases, a dtype and an aspect (aspects.py). Its verdict is ``ok``, ``missing``
(it needs an operator that the device lacks), ``wrong`` with the first difference, or ``none`` (the CPU takes none of
the samples).
``python tests/ops/suite.py add mul --dtype float32 --aspect out`` prints verdicts; without arguments, of everything.
"""

import argparse
import collections
import contextlib
import dataclasses
import itertools
import json
import os
import sys
import warnings
import zlib

import compare
import exceptions
from aspects import ASPECTS, Refused
from compare import DTYPES
from torch.testing._internal import common_methods_invocations as databases

import torch

EVERYTHING = os.environ.get("TTPU_TEST_ALL", "0") == "1"


def label(op) -> str:
    """The name that exceptions use: "add", "norm.nuc"."""
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


OPERATORS = {
    label(op): op
    for op in itertools.chain(
        databases.op_db,
        databases.foreach_unary_op_db,
        databases.foreach_binary_op_db,
        databases.foreach_pointwise_op_db,
        databases.foreach_reduce_op_db,
        databases.foreach_other_op_db,
    )
}


@dataclasses.dataclass
class Verdict:
    """What became of one case."""

    operator: str
    dtype: str
    aspect: str
    outcome: str  # ok, missing, wrong, none
    detail: str = ""

    def is_different(self) -> bool:
        """Does tpu differ from the CPU?"""
        return self.outcome in ("missing", "wrong")


def core_operators() -> list[torch._ops.OpOverload]:
    """The overloads that PyTorch tags as Core ATen."""
    packets = [getattr(torch.ops.aten, name) for name in dir(torch.ops.aten)]
    packets = [p for p in packets if isinstance(p, torch._ops.OpOverloadPacket)]
    overloads = [getattr(p, name) for p in packets for name in p.overloads()]
    return [op for op in overloads if torch.Tag.core in op.tags]


def dtypes_of(op) -> list[str]:
    """The dtypes that an operator's CPU kernels take, among those that a TPU has."""
    return [name for name, dtype in DTYPES.items() if dtype in op.supported_dtypes("cpu")]


def cases_of(op) -> list[tuple[str, str]]:
    """All (dtype, aspect) of an operator."""
    return [(d, a) for d in dtypes_of(op) for a, aspect in ASPECTS.items() if aspect.applies(op, DTYPES[d])]


QUICK_DTYPES = ("float32", "int64")
QUICK_SHARE = 36  # of the other cases, one in so many


def is_quick(name: str, dtype: str, aspect: str) -> bool:
    """Is the case among those that run always? Values in two dtypes, and a fixed sample of the rest."""
    if aspect == "values" and dtype in QUICK_DTYPES:
        return True
    return zlib.crc32(f"{name} {dtype} {aspect}".encode()) % QUICK_SHARE == 0


def limit_of(aspect: str, everything: bool) -> int:
    """How many samples to compare."""
    if not everything:
        return {"values": 3, "errors": 100}.get(aspect, 2)
    return {"values": 30, "reference": 60, "errors": 1000, "compiled": 2}.get(aspect, 8)


def judge(name: str, dtype_name: str, aspect_name: str, limit: int) -> Verdict:
    """Compare up to ``limit`` samples."""
    op, dtype, aspect = OPERATORS[name], DTYPES[dtype_name], ASPECTS[aspect_name]

    def verdict(outcome: str, detail: str = "") -> Verdict:
        return Verdict(name, dtype_name, aspect_name, outcome, " ".join(detail.split())[:400])

    compare.seed()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = list(itertools.islice(aspect.samples(op, dtype), limit))
    except NotImplementedError as error:
        return verdict("missing" if "tpu" in str(error) else "none", str(error))
    except Exception as error:
        return verdict("none", str(error))
    compared = 0
    for i, sample in enumerate(samples):
        try:
            aspect.check(op, dtype, sample)
            compared += 1
        except Refused:
            continue
        except NotImplementedError as error:
            return verdict("missing", str(error).split("\n")[0])
        except Exception as error:
            with contextlib.suppress(Exception):
                torch.tpu.synchronize()
            return verdict("wrong", f"sample {i}: {type(error).__name__}: {error}")
    return verdict("ok" if compared else "none")


class Record:
    """Verdicts in a file, a JSON object a line, the last of a case counting.

    A case stands there as "crash" while it runs: when a plugin ends the process, the same command goes on behind it.
    """

    def __init__(self, path: str) -> None:
        self.file = open(path, "a+", encoding="utf-8")  # for the life of the process
        self.file.seek(0)
        self.known = {(v["operator"], v["dtype"], v["aspect"]) for v in map(json.loads, self.file)}

    def put(self, verdict: Verdict) -> None:
        """Append it."""
        print(json.dumps(dataclasses.asdict(verdict)), file=self.file, flush=True)


def main() -> int:
    """Print the differences that are no exceptions, and counts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--dtype", action="append", choices=list(DTYPES))
    parser.add_argument("--aspect", action="append", choices=list(ASPECTS))
    parser.add_argument("--samples", type=int)
    parser.add_argument("--part", default="0/1", help="i/n: every n-th operator from the i-th")
    parser.add_argument("--verbose", action="store_true", help="name each case before it runs")
    parser.add_argument("--quick", action="store_true", help="the cases that `make test` runs")
    parser.add_argument("--json", help="append each verdict to this file, and pass over the cases that are in it")
    options = parser.parse_args()
    part, parts = (int(x) for x in options.part.split("/"))
    record = Record(options.json) if options.json else None
    counts: collections.Counter = collections.Counter()
    names = [n for n, op in OPERATORS.items() if not options.operators or {n, op.name} & set(options.operators)]
    for name in names[part::parts]:
        for dtype, aspect in cases_of(OPERATORS[name]):
            if (options.dtype and dtype not in options.dtype) or (options.aspect and aspect not in options.aspect):
                continue
            if options.quick and not is_quick(name, dtype, aspect):
                continue
            if record:
                if (name, dtype, aspect) in record.known:
                    continue
                record.put(Verdict(name, dtype, aspect, "crash"))
            if options.verbose:
                print(f"{name} {dtype} {aspect}", flush=True)
            verdict = judge(name, dtype, aspect, options.samples or limit_of(aspect, True))
            if verdict.is_different() and exceptions.is_known(name, dtype, aspect):
                verdict.outcome = "known"
            if record:
                record.put(verdict)
            counts[verdict.outcome] += 1
            if verdict.is_different():
                print(f"{verdict.outcome:8} {name} {dtype} {aspect}: {verdict.detail}", flush=True)
    print(", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items())))
    return 1 if counts["wrong"] or counts["missing"] else 0


if __name__ == "__main__":
    sys.exit(main())
