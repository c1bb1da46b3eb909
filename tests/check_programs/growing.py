"""A program for the CPU whose sequences grow, whose results' sizes depend on values, and which fails in the end."""

import torch

model = torch.nn.Linear(4, 4)
with torch.no_grad():
    for length in range(2, 9):
        output = model(torch.randn(length, 4))
        kept = output[output > 0]
        if length % 2:
            print(output.sum())
    raise KeyError(f"nothing left of {tuple(kept.shape)[1:]}")
