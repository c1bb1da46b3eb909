"""One process of a training script for several, written for CUDA and NCCL."""

import os

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import torch

place = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
for name, value in place.items():
    os.environ.setdefault(name, value)

dist.init_process_group(backend="nccl", device_id=torch.device("cuda:0"))
device = f"cuda:{os.environ['LOCAL_RANK']}"
torch.cuda.set_device(device)
model = DistributedDataParallel(torch.nn.Linear(4, 4).to(device), device_ids=[0])
everyone = dist.new_group(backend="cuda:nccl,cpu:gloo")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4, device=device)).sum()
    loss.backward()
    optimizer.step()
dist.all_reduce(loss, group=everyone)
dist.barrier()
assert loss.device.type == "tpu" and dist.get_backend() == "tpu_dist"
dist.destroy_process_group()
