"""The command ``ttpu check``."""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from typing import Any

from torch_tpu.check import cost, judge, page, report, target

DESCRIPTION = """\
Will this program run on a TPU, and how well? It is run here, on the software TPU, and reported on: operators, reads by
the host, recompilation, memory of the chosen chip, agreement with the CPU, time.

TARGET is a script, run as it is with its arguments, or a module, run as by python -m; or a function, file.py:function
or package.module:function. A function is called with what --input makes; one that takes nothing may also return what
is to be called: a module, (module or function, arguments), or a dict with "target" and "args", as for ttpu aot.

Exit status: 0 nothing that --fail-on names, 1 something, 2 a wrong call.
"""

_LIFTED = 1 << 50  # bytes of memory of the simulated chip: programs go on beyond the chip's own, and it is seen how far


def _bytes(text: str) -> int:
    """A number of bytes, such as 12G or 512M."""
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    number, unit = (text[:-1], units[text[-1].upper()]) if text[-1:].upper() in units else (text, 0)
    if not number.isdigit() or int(number) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; expected one such as 12G or 512M")
    return int(number) << unit


def add_to(commands: argparse._SubParsersAction) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "check",
        help="will a program run on a TPU, and how well?",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--chip", default="v5e", help="v5e, v6e, v5p, tpu7x ...: whose memory and speed count")
    parser.add_argument(
        "--memory",
        type=_bytes,
        metavar="SIZE",
        help="of the chip's memory, 12G for instance, what the program may use (default: all)",
    )
    parser.add_argument("--input", metavar="[FILE:]NAME", help="what makes a function's arguments: a tuple or a dict")
    parser.add_argument(
        "--steps",
        type=int,
        default=10,
        help="end after so many steps, of an optimizer or else calls of a whole module (default 10; 0: run to the end)",
    )
    parser.add_argument("--seconds", type=float, default=600, help="end after so many (default 600; 0: never)")
    parser.add_argument(
        "--map",
        action="append",
        choices=["cuda=tpu", "cpu=tpu", "none"],
        help="devices that stand for tpu: cuda, and the CPU in programs that use no other (default: both)",
    )
    parser.add_argument("--graph-breaks", action="store_true", help="trace the largest module as torch.compile would")
    parser.add_argument("--no-parity", action="store_true", help="do not compare with the CPU")
    parser.add_argument("--no-gradients", action="store_true", help="do not compare gradients")
    parser.add_argument(
        "--compile-seconds",
        type=float,
        default=60,
        help="time for the TPU compiler, where libtpu is installed (default 60; 0: do not ask it)",
    )
    parser.add_argument("--fail-on", choices=["error", "warning"], default="error", help="what makes the exit status 1")
    parser.add_argument("--json", metavar="FILE", help="write everything that was seen")
    parser.add_argument("--html", metavar="FILE", help="write a page with pictures")
    parser.add_argument("--all", action="store_true", help="list all operators")
    parser.add_argument("target", metavar="TARGET")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    parser.set_defaults(run=run)


def _specification(options: argparse.Namespace, folder: pathlib.Path) -> dict[str, Any]:
    maps = options.map or ["cuda=tpu", "cpu=tpu"]
    return {
        "target": options.target,
        "arguments": options.arguments,
        "inputs": options.input,
        "chip": options.chip,
        "memory": options.memory,
        "steps": options.steps,
        "seconds": options.seconds or float(10**9),
        "map_cuda": "cuda=tpu" in maps,
        "map_cpu": "cpu=tpu" in maps,
        "parity": not options.no_parity,
        "gradients": not options.no_gradients,
        "graph_breaks": options.graph_breaks,
        "compile_seconds": options.compile_seconds,
        "folder": str(folder),
        "output": str(folder / "report.json"),
    }


def _environment(options: argparse.Namespace, folder: pathlib.Path) -> dict[str, str]:
    """The software TPU as the chosen chip, with memory without end, keeping its programs as text."""
    return os.environ | {
        "TTPU_PLUGIN": "soft",
        "TTPU_PLUGIN_OPTIONS": "",
        "TTPU_TOPOLOGY": cost.topology_of(cost.chips()[options.chip]),
        "TTPU_HBM_BYTES": str(_LIFTED),
        "TTPU_PROGRAM_DIR": str(folder),
        "TTPU_CACHE": "off",
    }


def _death(process: subprocess.CompletedProcess, crash: pathlib.Path) -> dict[str, str]:
    """How a process ended that could not say so itself."""
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        reason = " (the system ends processes so when memory is short)" if name == "SIGKILL" else ""
        message = f"by {name}{reason}"
    else:
        message = f"with exit status {process.returncode}"
    stack = (
        [line.strip() for line in crash.read_text().splitlines() if line.strip().startswith("File")]
        if crash.exists()
        else []
    )
    return {"how": "died", "message": message, "where": "; ".join(stack[:3])}


def _empty(specification: dict) -> dict:
    """The report of a program of which nothing was seen."""
    chip = cost.chips()[specification["chip"]]
    return {
        "chip": chip,
        "ended": {},
        "operators": [],
        "host_reads": [],
        "host_operators": [],
        "dynamic": [],
        "recompilations": {
            "built": [],
            "compiled": [],
            "warm_after": 2,
            "late_steps": 0,
            "late_steps_that_build": 0,
            "risks": [],
        },
        "compiled": {"graphs": 0, "breaks": []},
        "explained": None,
        "memory": {
            "limit": specification["memory"] or chip["hbm_bytes"],
            "peak": 0,
            "temporaries": 0,
            "over": 0,
            "software_peak": 0,
            "exceeded": None,
            "kinds": {},
            "largest": [],
            "curve": [],
            "steps": [],
        },
        "parity": None,
        "cost": None,
        "cuda": [],
        "moved": [],
        "calls": {"tpu": 0, "elsewhere": 0},
        "steps": {"count": 0, "kind": "forward", "seconds": []},
    }


def _run_apart(specification: dict, environment: dict[str, str]) -> dict:
    """Run the program in a process of its own; what that saw."""
    output = pathlib.Path(specification["output"])
    asked = output.with_name("specification.json")
    asked.write_text(json.dumps(specification))
    # What the program prints goes to the errors' stream, so that the report stands alone.
    process = subprocess.run([sys.executable, "-m", "torch_tpu.check.run", asked], env=environment, stdout=sys.stderr)
    if not output.exists() and process.returncode > 0:  # a program's own errors are caught
        return {"usage": "the check itself failed; its error is above"}
    seen = json.loads(output.read_text()) if output.exists() else _empty(specification)
    if process.returncode != 0 and "usage" not in seen and seen["ended"].get("how") in (None, "running"):
        seen["ended"] = _death(process, output.with_suffix(".crash"))
    return seen


def check(options: argparse.Namespace) -> dict:
    """Check a program and give the report.

    Raises
    ------
    TargetError
        If what is to be checked does not exist, or cannot be.
    """
    target.find(options.target, options.arguments, options.input)
    with tempfile.TemporaryDirectory(prefix="ttpu-check-") as name:
        folder = pathlib.Path(name)
        seen = _run_apart(_specification(options, folder), _environment(options, folder))
    if "usage" in seen:
        raise target.TargetError(seen["usage"])
    seen["command"] = " ".join([options.target, *options.arguments])
    found = judge.findings(seen)
    return seen | {"findings": [finding.to_dict() for finding in found], "verdict": judge.verdict(found)}


def run(options: argparse.Namespace) -> int:
    """Check a program and print the report."""
    if options.chip not in cost.chips():
        names = ", ".join(sorted({chip["name"] for chip in cost.chips().values()}))
        print(f"ttpu check: no chip is named {options.chip}; there are {names}", file=sys.stderr)
        return 2
    try:
        found = check(options)
    except target.TargetError as error:
        print(f"ttpu check: {error}", file=sys.stderr)
        return 2
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1))
    if options.html:
        pathlib.Path(options.html).write_text(page.html(found))
    print(report.text(found, options.all), end="")
    return 1 if judge.fails(found["verdict"], options.fail_on) else 0
