"""The same programs on the software TPU and on another PJRT plugin, through one client: compiling and running.

Each plugin has a process of its own, without kept programs; the models are bench/zoo.py's, eager, in f32. What a
model's first call compiles is timed by the runtime (`torch.tpu.counters()["compile_seconds"]`), its later calls by the
clock, the fastest. `python bench/plugins.py [--plugin PATH] [gpt2 vit ...]`; the plugin is XLA's for CPUs where that is
installed.
"""

import argparse
import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys
import time


def xla_plugin() -> str | None:
    """The path of XLA's CPU plugin, of the package lammps-jax-pjrt-cpu."""
    found = importlib.util.find_spec("lammps_jax_pjrt_cpu")
    folders = found.submodule_search_locations if found else ()
    return next((str(pathlib.Path(folder) / "pjrt_c_api_cpu_plugin.so") for folder in folders or ()), None)


def measure(parts: list[str], mode: str, calls: int) -> None:
    """In the process of one plugin: print a line of JSON for each part."""
    import zoo

    import torch

    for part in parts:
        run = zoo.program(part, mode, "tpu", torch.float32)
        torch.tpu.synchronize()
        before = torch.tpu.counters()
        run()
        run()  # an optimizer's second step has other programs
        after = torch.tpu.counters()
        fastest = math.inf
        for _ in range(calls):
            start = time.perf_counter()
            run()
            fastest = min(fastest, time.perf_counter() - start)
        compiled = {name: after[name] - before[name] for name in ("programs_built", "compile_seconds")}
        print(json.dumps({"part": part, "run": fastest, **compiled}), flush=True)


def measured(plugin: str, options: argparse.Namespace) -> dict[str, dict]:
    """By part, what a process with that plugin says."""
    command = [
        sys.executable,
        __file__,
        *options.parts,
        "--mode",
        options.mode,
        "--calls",
        str(options.calls),
        "--here",
    ]
    environment = {**os.environ, "TTPU_PLUGIN": plugin, "TTPU_CACHE": "off"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return {row["part"]: row for row in map(json.loads, done.stdout.splitlines())}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["gpt2", "bert", "vit", "llama"])
    parser.add_argument("--plugin", default=xla_plugin())
    parser.add_argument("--mode", default="forward", choices=["forward", "train"])
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        measure(options.parts, options.mode, options.calls)
        return 0
    if options.plugin is None:
        parser.error("no plugin: pip install --no-deps lammps-jax-pjrt-cpu, or --plugin PATH")
    other, ours = measured(options.plugin, options), measured("soft", options)
    columns = ("programs", "compile ms: other", "ours", "ratio", "run ms: other", "ours", "ratio")
    print(f"{options.mode:<12}{''.join(f'{title:>{len(title) + 4}}' for title in columns)}")
    ratios: dict[str, list[float]] = {"compile_seconds": [], "run": []}
    for part in options.parts:
        cells = [float(ours[part]["programs_built"])]
        for name, found in ratios.items():
            seconds = other[part][name], ours[part][name]
            found.append(seconds[0] / seconds[1])
            cells += [seconds[0] * 1e3, seconds[1] * 1e3, found[-1]]
        print(f"{part:<12}{''.join(f'{x:>{len(t) + 4}.4g}' for t, x in zip(columns, cells, strict=True))}")
    means = [math.exp(sum(map(math.log, found)) / len(found)) for found in ratios.values()]
    print(f"geometric means: compiled {means[0]:.0f} times as fast (target 50), run {means[1]:.2f} times (target 1.2)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
