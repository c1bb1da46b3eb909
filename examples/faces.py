"""Faces in a photograph and their eyes, nose and mouth, found by the three networks of MTCNN; draws them.

    python examples/faces.py [photo.png] [--output FOLDER]

Without a photograph it takes scikit-image's portrait of the astronaut Eileen Collins. A small network looks at the
picture in many sizes, a second and a third look closer at what the one before found (Zhang et al. 2016); the weights
come from the package facenet-pytorch.
"""

import argparse
import pathlib
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from _report import Row, console, package_folder, print_table, run_on
from PIL import Image

import torch
from torch import nn

SMALLEST, SHRINK = 40, 0.709  # the smallest face in pixels, and from one size of the picture to the next
SURE = (0.6, 0.7, 0.8)  # how sure each network has to be


class Network(nn.Module):
    """One of the three: convolutions, perhaps one more layer, two or three heads; the file of weights has their sizes.

    ``pools`` has the kernel and the stride of the pooling behind each convolution, None where there is none.
    """

    def __init__(self, name: str, pools: list[tuple[int, int] | None], heads: list[str]):
        super().__init__()
        state = torch.load(
            package_folder("facenet_pytorch", "facenet-pytorch") / "data" / f"{name}.pt",
            map_location="cpu",
            weights_only=True,
        )
        self.pools, self.heads = pools, heads
        for layer in dict.fromkeys(key.split(".")[0] for key in state):
            size = state[f"{layer}.weight"].shape
            if layer.startswith("conv"):
                self.add_module(layer, nn.Conv2d(size[1], size[0], size[2]))
            elif layer.startswith("dense"):
                self.add_module(layer, nn.Linear(size[1], size[0]))
            else:
                self.add_module(layer, nn.PReLU(size[0]))
        self.load_state_dict(state)
        self.dense = [name for name, _ in self.named_children() if name.startswith("dense") and name not in heads]

    def forward(self, pictures: torch.Tensor) -> list[torch.Tensor]:
        """The heads' results: whether there is a face, by how much its box is off, and where the five points are."""
        x = pictures
        for number, pool in enumerate(self.pools, 1):
            x = self.get_submodule(f"prelu{number}")(self.get_submodule(f"conv{number}")(x))
            if pool:
                x = nn.functional.max_pool2d(x, *pool, ceil_mode=True)
        if self.dense:
            x = x.permute(0, 3, 2, 1).flatten(1)  # the weights' order: columns, rows, channels
            x = self.get_submodule(f"prelu{len(self.pools) + 1}")(self.get_submodule(self.dense[0])(x))
        found, *where = (self.get_submodule(head)(x) for head in self.heads)
        return [found.softmax(1)[:, 1], *where]


def make_networks() -> list[Network]:
    """The proposing, the refining and the final network."""
    return [
        Network("pnet", [(2, 2), None, None], ["conv4_1", "conv4_2"]),
        Network("rnet", [(3, 2), (3, 2), None], ["dense5_1", "dense5_2"]),
        Network("onet", [(3, 2), (3, 2), (2, 2), None], ["dense6_1", "dense6_2", "dense6_3"]),
    ]


def best_of_each(boxes: torch.Tensor, scores: torch.Tensor, overlap: float, of_smaller: bool = False) -> torch.Tensor:
    """Indices of the boxes that no surer box overlaps by more than a share of both, or of the smaller one."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    corners = (
        torch.maximum(boxes[:, None, :2], boxes[None, :, :2]),
        torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:]),
    )
    shared = (corners[1] - corners[0]).clamp(min=0).prod(2)
    whole = torch.minimum(areas[:, None], areas[None]) if of_smaller else areas[:, None] + areas[None] - shared
    too_near = (shared / whole > overlap).cpu()  # one read; what follows is a few decisions
    kept: list[int] = []
    for index in scores.argsort(descending=True).tolist():
        if not too_near[index, kept].any():
            kept.append(index)
    return torch.tensor(kept, dtype=torch.long, device=boxes.device)


def moved(boxes: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Boxes moved by offsets that are shares of their sizes, and made square."""
    boxes = boxes + offsets * (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)
    half = (boxes[:, 2:] - boxes[:, :2]).amax(1, keepdim=True) / 2
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    return torch.cat([centres - half, centres + half], 1)


def cut_out(picture: torch.Tensor, boxes: torch.Tensor, size: int) -> torch.Tensor:
    """The picture inside of each box, [boxes, 3, size, size]; black beyond its edges."""
    scale = torch.tensor(picture.shape[:1:-1], device=boxes.device)  # columns, rows
    first, last = (2 * boxes[:, :2] / scale - 1), (2 * boxes[:, 2:] / scale - 1)
    matrix = torch.diag_embed((last - first) / 2)
    grid = nn.functional.affine_grid(
        torch.cat([matrix, ((first + last) / 2)[:, :, None]], 2), [len(boxes), 3, size, size], align_corners=False
    )
    return nn.functional.grid_sample(picture.expand(len(boxes), -1, -1, -1), grid, align_corners=False)


def propose(network: Network, picture: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Boxes where there may be a face, and how sure that is, from the picture in many sizes."""
    boxes, scores, scale = [], [], 12 / SMALLEST
    while min(picture.shape[2:]) * scale >= 12:
        size = [int(side * scale + 1) for side in picture.shape[2:]]
        found, offsets = network(nn.functional.interpolate(picture, size=size, mode="area"))
        row, column = (found[0] > SURE[0]).nonzero(as_tuple=True)
        place = torch.stack([column, row], 1) * 2  # the network's stride is 2, and it sees 12 pixels
        here = torch.cat([place, place + 12], 1) / scale
        here, score = moved(here, offsets[0, :, row, column].T), found[0, row, column]
        keep = best_of_each(here, score, 0.5)
        boxes.append(here[keep])
        scores.append(score[keep])
        scale *= SHRINK
    boxes, scores = torch.cat(boxes), torch.cat(scores)
    keep = best_of_each(boxes, scores, 0.7)
    return boxes[keep], scores[keep]


@torch.no_grad()
def find_faces(device: str, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Boxes [faces, 4], how sure each is, eyes, nose, mouth's corners [faces, 5, 2]; of pixels [rows, columns, 3]."""
    proposing, refining, final = (network.to(device).eval() for network in make_networks())
    picture = ((pixels.to(device).permute(2, 0, 1)[None] - 127.5) / 128).float()
    boxes, _ = propose(proposing, picture)
    scores, offsets = refining(cut_out(picture, boxes, 24))
    sure = scores > SURE[1]
    boxes, scores = moved(boxes[sure], offsets[sure]), scores[sure]
    keep = best_of_each(boxes, scores, 0.7)
    boxes = boxes[keep]
    scores, offsets, points = final(cut_out(picture, boxes, 48))
    sure = scores > SURE[2]
    boxes, scores, offsets, points = boxes[sure], scores[sure], offsets[sure], points[sure]
    sizes = boxes[:, 2:] - boxes[:, :2]
    points = boxes[:, None, :2] + sizes[:, None] * points.unflatten(1, (2, 5)).transpose(1, 2)
    boxes = boxes + offsets * sizes.repeat(1, 2)
    keep = best_of_each(boxes, scores, 0.7, of_smaller=True)
    return boxes[keep].cpu(), scores[keep].cpu(), points[keep].cpu()


def draw(pixels: torch.Tensor, boxes: torch.Tensor, points: torch.Tensor, path: pathlib.Path) -> None:
    """Save the photograph with what was found."""
    figure, axes = plt.subplots(figsize=(7, 7))
    axes.imshow(pixels.byte().numpy())
    for (left, top, right, bottom), marks in zip(boxes.tolist(), points, strict=True):
        axes.add_patch(plt.Rectangle((left, top), right - left, bottom - top, fill=False, color="lime", linewidth=2))
        axes.scatter(*marks.T, color="red", s=15)
    axes.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main(output: pathlib.Path, photo: pathlib.Path | None = None) -> Row:
    """Find the faces on both devices and compare; draws them into the folder."""
    console.rule("faces: MTCNN")
    known = photo is None
    photo = photo or package_folder("skimage", "scikit-image") / "data" / "astronaut.png"
    pixels = torch.frombuffer(bytearray((image := Image.open(photo).convert("RGB")).tobytes()), dtype=torch.uint8)
    pixels = pixels.view(image.height, image.width, 3)
    cpu = run_on("cpu", lambda device: find_faces(device, pixels))
    tpu = run_on("tpu", lambda device: find_faces(device, pixels))
    (expected, _, expected_points), (boxes, scores, points) = cpu.result, tpu.result
    for box, score in zip(boxes.round().int().tolist(), scores.tolist(), strict=True):
        console.print(f"a face from column {box[0]}, row {box[1]} to column {box[2]}, row {box[3]}: {score:.1%} sure")
    draw(pixels, boxes, points, output / "faces.png")
    same = boxes.shape == expected.shape
    difference = (
        max([(boxes - expected).abs().max().item(), (points - expected_points).abs().max().item()]) if same else 0
    )
    right = not known or (len(boxes) == 1 and bool(((points[0] > boxes[0, :2]) & (points[0] < boxes[0, 2:])).all()))
    return Row(
        "faces",
        f"{len(boxes)} found, {', '.join(f'{score:.1%}' for score in scores.tolist())} sure",
        f"at most {difference:.1e} pixels" if same else f"the CPU finds {len(expected)}",
        cpu.seconds,
        tpu,
        same and difference < 0.1 and right,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photo", type=pathlib.Path, nargs="?", help="a picture; without one, the astronaut's")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(), help="the folder for faces.png")
    options = parser.parse_args()
    sys.exit(0 if print_table([main(options.output, options.photo)]) else 1)
