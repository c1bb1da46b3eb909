"""Every model of a library on tpu beside the CPU: `python tests/hf/sweep.py --help`.

Each model is small and has random weights; what is done with it stands in `trial.py`. Results are lines of JSON, so
that a run can be stopped and taken up again; `--markdown` makes docs/models.md from them.
"""

import argparse
import importlib
import json
import pathlib
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import testers
import trial
import workers

import torch

LIBRARIES = "transformers", "timm", "diffusers", "sentence_transformers"
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
ROOT = pathlib.Path(__file__).resolve().parents[2]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", choices=LIBRARIES, default="transformers")
    parser.add_argument("--only", default="", help="these models, separated by commas")
    parser.add_argument("--part", default="0/1", help="every n-th model from the k-th on, written k/n")
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--compiled", action="store_true", help="through torch.compile")
    parser.add_argument("--no-generate", action="store_true", help="leave generation out")
    parser.add_argument("--cpu-only", action="store_true", help="only find out what runs on the CPU")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default 2)")
    parser.add_argument(
        "--seconds", type=float, default=120, help="of processor time, after which a model counts as hanging"
    )
    parser.add_argument("--memory", type=float, default=4, help="GiB that a model may have")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "build/models.jsonl", help="lines of JSON")
    parser.add_argument(
        "--testers",
        type=pathlib.Path,
        help="a source tree of Transformers: the tiny configurations of its tests come before those of our own making",
    )
    parser.add_argument("--again", action="store_true", help="also what is in the results already")
    parser.add_argument("--failed", action="store_true", help="only what has not agreed so far")
    parser.add_argument("--markdown", action="store_true", help="write docs/models.md from the results, run nothing")
    arguments = parser.parse_args()
    if arguments.testers:
        testers.use(arguments.testers)
    return arguments


def read_results(path: pathlib.Path) -> dict[tuple, dict[str, Any]]:
    """The last result of each model, by library, name, dtype and mode."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {key_of(result): result for result in map(json.loads, lines)}


def key_of(result: dict[str, Any]) -> tuple:
    return tuple(result[name] for name in ("library", "name", "dtype", "mode"))


def outcome(result: dict[str, Any]) -> str:
    """One word for a result: agrees, fails, or not runnable."""
    if "not_runnable" in result:
        return "not runnable"
    if "crash" in result:
        return "fails"
    good = all(value == "ok" or value.startswith("not on the CPU") for value in result["steps"].values())
    return "agrees" if good else "fails"


def try_model(item: dict[str, Any]) -> dict[str, Any]:
    """The child's work: build one model and run it on both devices."""
    torch.set_num_threads(1)
    library = importlib.import_module("zoo_" + item["library"])
    try:
        case = library.make_case(item["name"])
    except Exception as error:
        reasons = error.args[0] if isinstance(error.args[0], list) else [trial.describe(error)]
        return {"not_runnable": reasons[0], "reasons": reasons}
    if item["cpu_only"]:
        return {**case.notes, "steps": {"CPU": "ok"}}
    case.generates &= item["generate"]
    try:
        return trial.run_trial(case, DTYPES[item["dtype"]], item["mode"] == "compiled")
    except trial.NotOnTheCPU as error:
        return {**case.notes, "not_runnable": str(error), "reasons": [str(error)]}


def choose(arguments: argparse.Namespace, known: dict[tuple, dict[str, Any]]) -> list[dict[str, Any]]:
    library = importlib.import_module("zoo_" + arguments.library)
    part, parts = map(int, arguments.part.split("/"))
    wanted = (arguments.only.split(",") if arguments.only else library.names())[part::parts]
    items = []
    for name in wanted:
        item = {
            "library": arguments.library,
            "name": name,
            "dtype": arguments.dtype,
            "mode": "compiled" if arguments.compiled else "eager",
        }
        before = known.get(key_of(item))
        if arguments.failed:
            skip = before is None or outcome(before) != "fails"
        else:
            skip = before is not None and not arguments.again
        if not skip:
            items.append({**item, "cpu_only": arguments.cpu_only, "generate": not arguments.no_generate})
    return items


def summary(result: dict[str, Any]) -> str:
    """What to print for a result."""
    if outcome(result) == "agrees":
        return ""
    if "not_runnable" in result:
        return result["not_runnable"]
    if "crash" in result:
        return result["crash"].strip().splitlines()[-1]
    return "; ".join(
        f"{step} {text}" for step, text in result["steps"].items() if not text.startswith(("ok", "not on"))
    )


def main() -> int:
    arguments = read_arguments()
    if arguments.markdown:
        import sweep_page

        sweep_page.write(read_results(arguments.results), ROOT / "docs/models.md")
        return 0
    items = choose(arguments, read_results(arguments.results))
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    importlib.import_module("zoo_" + arguments.library).preload()
    began, done, bad = time.monotonic(), 0, 0
    with arguments.results.open("a") as file:
        memory = int(arguments.memory * 2**30)
        for item, result in workers.run_all(items, try_model, arguments.jobs, arguments.seconds, memory):
            result = {name: item[name] for name in ("library", "name", "dtype", "mode")} | result
            file.write(json.dumps(result) + "\n")
            file.flush()
            done, bad = done + 1, bad + (outcome(result) == "fails")
            elapsed = time.monotonic() - began
            print(
                f"[{done}/{len(items)} {elapsed:.0f}s] {item['name']}: {outcome(result)} {summary(result)}", flush=True
            )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
