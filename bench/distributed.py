"""torch.distributed in two processes on this machine: tpu_dist on tpu tensors beside Gloo on CPU tensors.

Each process has one thread. A row is a collective and a size, or a training step under DistributedDataParallel.
"""

import argparse
import os
import socket
import statistics
import time

import torch.distributed as dist
import torch.multiprocessing

import torch


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=9)
    return parser.parse_args()


def rows(device: str) -> dict:
    """What is timed: a name, and a function that does it once."""
    from transformers import GPT2Config, GPT2LMHeadModel

    made = {}
    for size, text in ((1, "4 B"), (2**10, "4 KiB"), (2**20, "4 MiB"), (2**24, "64 MiB")):
        x, both = torch.ones(size, device=device), torch.empty(2 * size, device=device)
        made[f"all_reduce, {text}"] = lambda x=x: dist.all_reduce(x, op=dist.ReduceOp.MAX)
        made[f"all_gather, {text} each"] = lambda x=x, both=both: dist.all_gather(list(both.chunk(2)), x)
    torch.manual_seed(0)
    config = GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=8192)
    model = torch.nn.parallel.DistributedDataParallel(GPT2LMHeadModel(config).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, 8192, (4, 128), device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()

    made["GPT-2 of 4 layers, 4 × 128 tokens, a training step"] = step
    return made


def process(rank: int, port: int, repetitions: int) -> None:
    """Times everything on both devices, in turns, and prints the table on rank 0."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1")
    torch.set_num_threads(1)
    torch.tpu.set_device(rank)
    dist.init_process_group("cpu:gloo,tpu:tpu_dist")
    table = {device: rows(device) for device in ("cpu", "tpu")}
    if rank == 0:
        print(f"{'':52} {'gloo, ms':>9} {'tpu_dist':>9} {'ratio':>6}")
    for name in table["cpu"]:
        times = {"cpu": [], "tpu": []}
        for turn in range(2 + repetitions):
            for device, measured in times.items():
                dist.barrier(device_ids=[rank])
                begin = time.perf_counter()
                table[device][name]()
                torch.tpu.synchronize()
                if turn >= 2:
                    measured.append(1e3 * (time.perf_counter() - begin))
        gloo, ours = (statistics.median(times[device]) for device in ("cpu", "tpu"))
        if rank == 0:
            print(f"{name:52} {gloo:9.2f} {ours:9.2f} {gloo / ours:6.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    arguments = read_arguments()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(process, (port, arguments.repetitions), nprocs=2)
