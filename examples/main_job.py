"""The main job: real models on the tpu device, each part next to the same program on the CPU (`make run`)."""

import argparse
import pathlib
import sys

import digits
import embeddings
import faces
import language_model
import speech
import tiny_gpt
from _report import console, print_table

import torch

PARTS = {
    "language_model": lambda output: language_model.main(),
    "embeddings": embeddings.main,
    "speech": speech.main,
    "faces": faces.main,
    "digits": lambda output: digits.main(),
    "gpt": tiny_gpt.main,
}


def main() -> int:
    """Run the chosen parts; the exit status says whether all passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts", nargs="*", default=list(PARTS), help=f"which parts, of {', '.join(PARTS)}; all by default"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, default=pathlib.Path("build/main_job"), help="where the pictures go"
    )
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    options.output.mkdir(parents=True, exist_ok=True)
    console.print(f"{torch.tpu.get_device_name()} ({torch.tpu.device_count()} device), PyTorch {torch.__version__}")
    rows = [PARTS[part](options.output) for part in options.parts]
    passed = print_table(rows)
    console.print(f"pictures: {options.output}/*.png")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
