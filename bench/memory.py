"""The most memory that training steps take beyond the weights, on tpu beside CPU eager (target: at most as much).

Each model of zoo.py trains three steps of AdamW in a process of its own, once for each device. *Resident* is what the
process grew by at its peak, with everything that belongs to a run: gradients, the optimizer's state, what is kept for
backward, and on tpu also programs, caches and memory that was freed and is kept for later. *Allocated* is
`torch.tpu.max_memory_allocated` without the weights. `python bench/memory.py gpt2 resnet` measures some.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

import zoo

import torch

STEPS = 3


def resident(field: str) -> int:
    """VmRSS (now) or VmHWM (the most so far), in bytes."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", status)[1]) * 1024


def train(part: str, device: str) -> None:
    """Print what three steps took as JSON."""
    run = zoo.program(part, "train", device, torch.float32)
    torch.tpu.synchronize()
    before = resident("VmRSS"), torch.tpu.memory_allocated()
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
    torch.tpu.reset_peak_memory_stats()
    for _ in range(STEPS):
        run()
    allocated = torch.tpu.max_memory_allocated() - before[1]
    print(json.dumps({"resident": resident("VmHWM") - before[0], "allocated": allocated}))


def measured(part: str, device: str) -> dict:
    """The same from a process of its own."""
    command = [sys.executable, __file__, part, "--device", device]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(output.splitlines()[-1])


def main(arguments: list[str]) -> int:
    """Print the table; the exit status says whether the target was met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="; ".join(zoo.TRAINED))
    parser.add_argument("--device", choices=("cpu", "tpu"), help="train one part on this device and print JSON")
    options = parser.parse_args(arguments)
    if options.device:
        train(options.parts[0], options.device)
        return 0
    print(f"{'MiB':<10}{'CPU resident':>14}{'tpu resident':>14}{'ratio':>8}{'tpu allocated':>15}{'ratio':>8}")
    ratios = []
    for part in options.parts or zoo.TRAINED:
        cpu, tpu = (measured(part, device) for device in ("cpu", "tpu"))
        ratios.append([tpu[kind] / cpu["resident"] for kind in ("resident", "allocated")])
        sizes = [x / 2**20 for x in (cpu["resident"], tpu["resident"], tpu["allocated"])]
        columns = f"{sizes[0]:>14.0f}{sizes[1]:>14.0f}{ratios[-1][0]:>8.2f}{sizes[2]:>15.0f}{ratios[-1][1]:>8.2f}"
        print(f"{part:<10}{columns}", flush=True)
    means = [statistics.geometric_mean(column) for column in zip(*ratios, strict=True)]
    print(f"geometric means: resident {means[0]:.2f}, allocated {means[1]:.2f} (target 1.00)")
    return int(means[0] > 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
