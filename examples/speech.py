"""Who speaks when in half a minute of conversation: silero-vad finds the speech, a voice encoder tells who speaks.

    python examples/speech.py [--audio talk.wav] [--device tpu]

The recording and the turns that were marked in it by hand come from the package pyannote.audio, the voice encoder's
weights from resemblyzer; of both only files are used.
"""

import argparse
import pathlib
import time
import wave

import numpy
from _report import Row, console, package_folder, print_table, run_on

import torch
from torch import nn

RATE = 16000
FRAME = 160  # samples in a step of the spectrogram: 10 ms
WINDOW = 160  # steps that the encoder hears at once: 1.6 s
HOP = 40  # steps from one window to the next


def read_audio(path: pathlib.Path) -> torch.Tensor:
    """Samples from -1 to 1 of a file of one channel, 16 bits and 16 kHz."""
    with wave.open(str(path)) as file:
        if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, RATE):
            raise SystemExit(f"{path}: one channel of 16 bits at {RATE} Hz is needed")
        return torch.frombuffer(bytearray(file.readframes(file.getnframes())), dtype=torch.int16).float() / 32768


def read_turns(path: pathlib.Path) -> list[tuple[float, float, str]]:
    """Begin and end in seconds and the speaker of each turn in a file of NIST's format RTTM."""
    fields = [line.split() for line in path.read_text().splitlines() if line.startswith("SPEAKER")]
    return [(float(f[3]), float(f[3]) + float(f[4]), f[7]) for f in fields]


def mel_filters(bands: int = 40, bins: int = 201) -> torch.Tensor:
    """Triangles of equal area on Slaney's mel scale (linear below 1 kHz, then logarithmic), [bands, bins]."""
    step = numpy.log(6.4) / 27
    to_mel = lambda f: 3 * f / 200 if f < 1000 else 15 + numpy.log(f / 1000) / step  # noqa: E731
    mels = numpy.linspace(0, to_mel(RATE / 2), bands + 2)
    edges = numpy.where(mels < 15, 200 * mels / 3, 1000 * numpy.exp(step * (mels - 15)))
    rising = (numpy.linspace(0, RATE / 2, bins) - edges[:-2, None]) / numpy.diff(edges)[:-1, None]
    falling = (edges[2:, None] - numpy.linspace(0, RATE / 2, bins)) / numpy.diff(edges)[1:, None]
    areas = 2 / (edges[2:] - edges[:-2])
    return torch.tensor(numpy.maximum(0, numpy.minimum(rising, falling)) * areas[:, None], dtype=torch.float32)


class VoiceEncoder(nn.Module):
    """Resemblyzer's network: how a voice sounds, as 256 numbers (Wan et al. 2018, generalized end-to-end loss)."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(40, 256, 3, batch_first=True)
        self.linear = nn.Linear(256, 256)
        self.register_buffer("filters", mel_filters(), persistent=False)
        self.register_buffer("hann", torch.hann_window(400), persistent=False)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        """Embeddings of length 1, [windows, 256], of overlapping windows of the samples."""
        spectrum = torch.stft(samples, 400, FRAME, window=self.hann, pad_mode="constant", return_complex=True)
        mels = (self.filters @ spectrum.abs().square()).T  # [steps, 40]
        windows = mels.unfold(0, WINDOW, HOP).transpose(1, 2)  # [windows, 160, 40]
        _, (hidden, _) = self.lstm(windows)
        return nn.functional.normalize(self.linear(hidden[-1]).relu(), dim=1)


def load_encoder() -> VoiceEncoder:
    """The encoder with its weights."""
    state = torch.load(package_folder("resemblyzer") / "pretrained.pt", map_location="cpu", weights_only=True)
    encoder = VoiceEncoder()
    encoder.load_state_dict({name: value for name, value in state["model_state"].items() if "similarity" not in name})
    return encoder.eval()


def two_speakers(voices: torch.Tensor, rounds: int = 10) -> torch.Tensor:
    """The windows in two groups by their voices: 2-means, begun with the two voices that differ most."""
    likeness = voices @ voices.T
    first, second = divmod(likeness.argmin().item(), len(voices))
    centres = voices[[first, second]]
    for _ in range(rounds):
        groups = (voices @ centres.T).argmax(1)
        centres = nn.functional.normalize(torch.stack([voices[groups == g].mean(0) for g in (0, 1)]), dim=1)
    return groups


@torch.no_grad()
def listen(device: str, samples: torch.Tensor) -> tuple[list[dict], torch.Tensor, float]:
    """Where there is speech, the voice in each window, and the seconds it took once the models were there."""
    from silero_vad import get_speech_timestamps, load_silero_vad

    detector, encoder = load_silero_vad().to(device), load_encoder().to(device)
    samples = samples.to(device)
    start = time.perf_counter()
    speech = get_speech_timestamps(samples, detector, return_seconds=True)
    # as loud as the encoder's training data: -30 dB of full scale, never made quieter
    louder = (10 ** (-30 / 20) / samples.square().mean().sqrt()).clamp(min=1)
    voices = encoder(samples * louder).cpu()
    return speech, voices, time.perf_counter() - start


def judge(speech: list[dict], voices: torch.Tensor, turns: list[tuple[float, float, str]]) -> tuple[float, float]:
    """The shares of 10 ms steps rightly called speech or silence, and of windows given to the right speaker."""
    steps = (len(voices) - 1) * HOP + WINDOW
    names = sorted({name for *_, name in turns})
    truth = torch.zeros(len(names), steps, dtype=torch.bool)
    for begin, end, name in turns:
        truth[names.index(name), int(begin * 100) : int(end * 100)] = True
    found = torch.zeros(steps, dtype=torch.bool)
    for part in speech:
        found[int(part["start"] * 100) : int(part["end"] * 100)] = True
    heard = truth.float().unfold(1, WINDOW, HOP).mean(2)  # [speakers, windows]
    clear = (heard.amax(0) > 0.8) & (heard.amin(0) < 0.2)  # one speaks, and hardly anybody else
    right = (two_speakers(voices[clear]) == heard[:, clear].argmax(0)).float().mean().item()
    return (found == truth.any(0)).float().mean().item(), max(right, 1 - right)  # which group is who is not known


def main(_output: pathlib.Path | None = None) -> Row:
    """Listen on both devices and compare; draws nothing."""
    console.rule("speech: silero-vad and a voice encoder")
    folder = package_folder("pyannote", "pyannote.audio") / "audio" / "sample"
    samples, turns = read_audio(folder / "sample.wav"), read_turns(folder / "sample.rttm")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as silero_vad does itself: the detector takes a thousand small steps
    cpu = run_on("cpu", lambda device: listen(device, samples))
    tpu = run_on("tpu", lambda device: listen(device, samples))
    torch.set_num_threads(threads)
    (expected, expected_voices, cpu_time), (speech, voices, tpu_time) = cpu.result, tpu.result
    (cpu_speech, cpu_speakers), (right_speech, right_speakers) = (judge(*run.result[:2], turns) for run in (cpu, tpu))
    difference = (voices - expected_voices).abs().max().item()
    console.print("speech found:", ", ".join(f"{part['start']:.1f}–{part['end']:.1f} s" for part in speech))
    console.print(f"the CPU: {cpu_speech:.1%} of the steps right, speakers {cpu_speakers:.1%}")
    return Row(
        "speech and speakers",
        f"speech {right_speech:.1%}, speakers {right_speakers:.1%} right",
        f"regions {'equal' if speech == expected else 'DIFFER'}, voices {difference:.1e}",
        cpu.seconds,
        tpu,
        speech == expected and difference < 1e-4 and right_speech > 0.85 and right_speakers > 0.9,
        cpu_time / tpu_time,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audio", type=pathlib.Path, help="a file of one channel, 16 bits and 16 kHz")
    parser.add_argument("--device", default="tpu", help="where to run it (default: tpu)")
    options = parser.parse_args()
    if options.audio is None:
        print_table([main()])
    else:
        for part in listen(options.device, read_audio(options.audio))[0]:
            console.print(f"{part['start']:8.2f} s to {part['end']:8.2f} s")
