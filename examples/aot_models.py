"""Whole models through the TPU compiler, without a TPU: on one chip, and cut over 4 and 16 by annotations on arguments.

    python examples/aot_models.py [--only gpt2] [--topology v6e] [--cut tensor]

GPT-2 (124 million parameters) forward, a training step of a Llama of 110 million parameters with AdamW, and ResNet-50
forward, in bfloat16. The models have no data, so nothing but the compiler's process needs memory. Needs libtpu.
"""

import argparse
import time

import transformers

import torch

aot = torch.tpu.aot


def gpt2() -> dict:
    """GPT-2 small, 8 sequences of 1,024 tokens."""
    with torch.device("meta"):
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False)).bfloat16().eval()
        tokens = torch.zeros(8, 1024, dtype=torch.long)
        mask = torch.ones(8, 1, 1024, 1024, dtype=torch.bool)  # given: see the Llama's
    rows, columns = ["*.c_proj"], ["*.c_attn", "*.c_fc"]
    # Conv1D keeps its weight as [in, out]: the reverse of Linear
    tensor = {f"{name}.weight": (None, "model") for name in columns} | {f"{name}.weight": ("model",) for name in rows}
    tensor |= {f"{name}.bias": ("model",) for name in columns}
    return {"target": model, "kwargs": {"input_ids": tokens, "attention_mask": mask}, "tensor": tensor}


def llama(layers: int = 12) -> dict:
    """A Llama of 110 million parameters, training on 8 sequences of 1,024 tokens: forward, backward, AdamW."""
    config = transformers.LlamaConfig(
        vocab_size=32000,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=layers,
        num_attention_heads=12,
        max_position_embeddings=1024,
        use_cache=False,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config).bfloat16()
        tokens = torch.zeros(8, 1024, dtype=torch.long)
    aot.without_data(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def step(input_ids: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        # given, because Transformers reads its position ids on the host to make one
        mask = torch.ones(input_ids.shape[1], input_ids.shape[1], dtype=torch.bool, device="tpu").tril()[None, None]
        loss = model(input_ids=input_ids, attention_mask=mask, labels=input_ids).loss
        loss.backward()
        optimizer.step()
        return loss

    columns = [f"*.{name}_proj" for name in ("q", "k", "v", "gate", "up")]
    tensor = aot.tensor_parallel(columns, ["*.o_proj", "*.down_proj"])
    return {"target": step, "args": (tokens,), "state": (model, optimizer), "tensor": tensor}


def resnet50() -> dict:
    """ResNet-50, 64 images of 224 x 224."""
    with torch.device("meta"):
        model = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000)).bfloat16().eval()
        images = torch.zeros(64, 3, 224, 224, dtype=torch.bfloat16)
    # convolutions cut along the channels that they make
    return {"target": model, "kwargs": {"pixel_values": images}, "tensor": {"*.convolution.weight": ("model",)}}


MODELS = {"gpt2": gpt2, "llama": llama, "resnet50": resnet50}
ONE = {"v5e": "1x1", "v6e": "1x1", "tpu7x": "1x1x1"}
FOUR = {"v5e": "2x2", "v6e": "2x2", "tpu7x": "1x2x1"}  # devices, of which a tpu7x has two
SIXTEEN = {"v5e": "4x4", "v6e": "4x4", "tpu7x": "2x2x2"}


def row(name: str, cut: str, report: aot.Report) -> str:
    gib, line = 2**30, report.roofline
    collectives = ", ".join(f"{c.count} {kind} ({c.bytes / 2**20:.0f} MiB)" for kind, c in report.collectives.items())
    return (
        f"| {name} | {report.topology} | {cut} | {report.memory.arguments / gib:.2f} | "
        f"{report.memory.temporaries / gib:.2f} | {report.flops / 1e12:.2f} | {report.bytes_accessed / 1e9:.1f} | "
        f"{line.seconds * 1e3:.1f} ({line.bound}) | {collectives or '–'} | {report.seconds_to_compile:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(MODELS))
    parser.add_argument("--topology", choices=list(ONE), default="v6e")
    parser.add_argument("--cut", choices=["none", "data", "tensor", "both"])
    parser.add_argument("--layers", type=int, default=12, help="of the Llama")
    options = parser.parse_args()
    head = "model, topology, cut, arguments GiB, temporaries GiB, TFLOP, GB accessed, at least ms, collectives, s"
    print("| " + head.replace(", ", " | ") + " |")
    print("|---|---|---|---:|---:|---:|---:|---|---|---:|", flush=True)
    for name, make in MODELS.items():
        if options.only not in (None, name):
            continue
        made = make(options.layers) if name == "llama" else make()
        tensor = made.pop("tensor")
        began = time.perf_counter()
        program = aot.capture(**made)
        captured = time.perf_counter() - began
        cuts = {
            "none": (ONE, {}),
            "data": (FOUR, {"mesh": {"data": 4}, "shardings": aot.data_parallel()}),
            "tensor": (FOUR, {"mesh": {"model": 4}, "shardings": tensor}),
            "both": (SIXTEEN, {"mesh": {"data": 4, "model": 4}, "shardings": aot.data_parallel() | tensor}),
        }
        for cut, (chips, how) in cuts.items():
            if options.cut in (None, cut):
                report = aot.compile(program, topology=f"{options.topology}:{chips[options.topology]}", **how)
                print(row(name, cut, report), flush=True)
        print(f"<!-- {name}: {program.operators} operators, captured in {captured:.2f} s -->", flush=True)


if __name__ == "__main__":
    main()
