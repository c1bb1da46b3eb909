"""Calls an operator that does not exist on tpu, in a function, and goes on."""

import torch


def observe(x: torch.Tensor) -> torch.Tensor:
    one, zero = torch.ones(1, device=x.device), torch.zeros(1, device=x.device)
    on = torch.ones(1, dtype=torch.long, device=x.device)
    return torch.fused_moving_avg_obs_fake_quant(x, on, on, zero, one, one, zero.int(), 0.01, 0, 255, 0)


if __name__ == "__main__":
    print(observe(torch.randn(8, 8, device="cuda")).sum())
