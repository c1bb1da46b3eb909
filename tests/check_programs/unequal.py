"""A module whose second layer computes something else on tpu, and what makes its arguments."""

import torch


class Other(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1.25 if x.device.type == "tpu" else x


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = torch.nn.Linear(4, 4), Other(), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
        return self.third(self.second(self.first(x))) * scale


def arguments() -> dict:
    return {"x": torch.randn(2, 4), "scale": 2.0}
