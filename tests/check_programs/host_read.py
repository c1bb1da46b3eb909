"""A training loop for cuda that reads its loss at every step, with arguments of the command line."""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batches", type=int, required=True)
options = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0
for _ in range(options.batches):
    for _ in range(2):  # gradients of two are added up
        inputs, targets = torch.randn(4, 8).cuda(), torch.randint(0, 2, (4,)).to(device)
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
print(f"mean loss {total / options.batches / 2}")
