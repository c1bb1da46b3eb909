"""torchvision's wheel wants operators that its own library defines, which loads beside one build of PyTorch only."""

import importlib.util

import torch

KEPT: list[torch.library.Library] = []


def define_torchvision_operators() -> None:
    """Let torchvision be imported beside a PyTorch that it was not built with, if it is there at all."""
    if importlib.util.find_spec("torchvision") is None or KEPT:
        return
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    KEPT.append(library)
