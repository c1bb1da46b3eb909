"""What the TPU compiler says of a program."""

import dataclasses
import math
import os
import pathlib
import re


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes of one device's memory that a program needs.

    Attributes
    ----------
    arguments, outputs, temporaries, code : int
        What is passed in, what comes out, what lives in between, and the program itself.
    alias : int
        Of the outputs, what takes the place of arguments.
    limit : int or None
        What a program may use of the chip's memory; None for a chip whose figures are not known.
    """

    arguments: int
    outputs: int
    temporaries: int
    code: int
    alias: int
    limit: int | None

    @property
    def total(self) -> int:
        """All of it: arguments, temporaries, code, and those outputs that take no argument's place."""
        return self.arguments + self.outputs - self.alias + self.temporaries + self.code


@dataclasses.dataclass(frozen=True)
class Collective:
    """Operations of a kind that move data between devices: how many, and the bytes of their results on one device.

    An operation in a loop's body counts once.
    """

    count: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class Roofline:
    """The time that a program cannot undercut on its chip, by published figures: the longest of three.

    Attributes
    ----------
    compute, memory, links : float
        Seconds for the operations at the chip's bfloat16 peak, for the bytes at its memory's bandwidth, and for the
        collectives' bytes at the bandwidth of all its links. All three overlap in the best case.
    """

    compute: float
    memory: float
    links: float

    @property
    def seconds(self) -> float:
        """The longest of the three."""
        return max(self.compute, self.memory, self.links)

    @property
    def bound(self) -> str:
        """What it is that takes the longest."""
        return max(("compute", "memory", "links"), key=lambda name: getattr(self, name))


@dataclasses.dataclass(frozen=True)
class Report:
    """A program compiled for TPUs ahead of time.

    Attributes
    ----------
    topology, device_kind : str
        For which chips: ``"v6e:2x2"``, and what PJRT calls one of its devices.
    devices : int
        How many devices the topology has.
    partitions, replicas : int
        Over how many devices the program's arguments are cut, and how many copies of it run.
    compiler : str
        The compiler's version.
    memory : Memory
        Bytes, on one device.
    flops, bytes_accessed : float
        Operations and bytes of one run on one device, as the compiler's cost analysis counts them.
    roofline : Roofline or None
        A lower bound of the time of one run, made of these; None for a chip whose figures are not known.
    compiler_seconds : float or None
        libtpu's own estimate of it; None where it is no time (it is negative for larger programs).
    collectives : dict of str to Collective
        By HLO's name: ``{"all-reduce": Collective(count=2, bytes=4096)}``.
    arguments, results : tuple of str
        The program's parameters and results in order, by name; empty for a program that came as StableHLO.
    aliases : dict of int to int
        Which argument's place is taken by which result.
    seconds_to_compile : float
        How long the compiler took.
    fingerprint : str
        The compiler's hash of the program, in hexadecimal.
    executable : bytes
        What ``PJRT_Executable_DeserializeAndLoad`` of the same libtpu loads on such chips.
    program : str or bytes
        The StableHLO that was compiled.
    """

    topology: str
    device_kind: str
    devices: int
    partitions: int
    replicas: int
    compiler: str
    memory: Memory
    flops: float
    bytes_accessed: float
    roofline: Roofline | None
    compiler_seconds: float | None
    collectives: dict[str, Collective]
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    aliases: dict[int, int]
    seconds_to_compile: float
    fingerprint: str
    executable: bytes = dataclasses.field(repr=False)
    program: str | bytes = dataclasses.field(repr=False)

    def save(self, path: str | os.PathLike) -> None:
        """Write the executable to a file."""
        pathlib.Path(path).write_bytes(self.executable)

    def to_dict(self) -> dict:
        """All but the executable and the program, as JSON takes it; sizes in their place."""
        fields = dataclasses.asdict(self)
        fields["executable_bytes"] = len(fields.pop("executable"))
        fields["program_bytes"] = len(fields.pop("program"))
        fields["memory"]["total"] = self.memory.total
        if self.roofline is not None:
            fields["roofline"] |= {"seconds": self.roofline.seconds, "bound": self.roofline.bound}
        return fields

    def __str__(self) -> str:
        return "\n".join(f"{name:20}{value}" for name, value in _rows(self))


def _bytes(count: float) -> str:
    """A byte count for people: "1.50 GiB"."""
    unit = min(max(int(math.log2(count) // 10), 0), 4) if count >= 1 else 0
    return f"{count / 1024**unit:.2f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}" if unit else f"{int(count)} B"


def _seconds(count: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count / 1e-9:.3g} ns"


def _rows(report: Report) -> list[tuple[str, str]]:
    m, line = report.memory, report.roofline
    spread = f", {report.partitions} partitions" if report.partitions > 1 else ""
    spread += f", {report.replicas} replicas" if report.replicas > 1 else ""
    limit = f" of {_bytes(m.limit)} ({100 * m.total / m.limit:.1f}%)" if m.limit else ""
    rows = [
        ("topology", f"{report.topology}: {report.devices} devices, {report.device_kind}{spread}"),
        ("memory a device", f"{_bytes(m.total)}{limit}"),
        ("  arguments", _bytes(m.arguments)),
        ("  outputs", f"{_bytes(m.outputs)}, of which in place {_bytes(m.alias)}"),
        ("  temporaries", _bytes(m.temporaries)),
        ("  code", _bytes(m.code)),
        ("operations", f"{report.flops:.4g} flop"),
        ("bytes accessed", _bytes(report.bytes_accessed)),
    ]
    if line is not None:
        rows.append(
            (
                "at least",
                f"{_seconds(line.seconds)}, bound by {line.bound} (compute {_seconds(line.compute)}, "
                f"memory {_seconds(line.memory)}, links {_seconds(line.links)})",
            )
        )
    if report.compiler_seconds is not None:
        rows.append(("libtpu's estimate", _seconds(report.compiler_seconds)))
    for kind, found in report.collectives.items():
        rows.append((kind, f"{found.count}, {_bytes(found.bytes)}"))
    rows += [
        ("executable", _bytes(len(report.executable))),
        ("compiled in", _seconds(report.seconds_to_compile)),
    ]
    return rows


# ---- from an answer of the compiler's process ----


def _number(answer: dict[str, bytes], name: str) -> float | None:
    return float(answer[name]) if name in answer else None


def chips_in(topology: str) -> int:
    """How many chips a topology's name stands for: ``v6e:2x2`` has 4."""
    return math.prod(int(extent) for extent in re.findall(r"\d+", topology.partition(":")[2])) or 1


def _roofline(
    answer: dict[str, bytes], topology: str, flops: float, accessed: float, collectives: dict
) -> Roofline | None:
    peak = _number(answer, "chip:flops_per_second")
    if peak is None:
        return None
    share = chips_in(topology) / int(answer["devices"])  # of a chip that a device is
    bandwidth = _number(answer, "chip:bytes_per_second")
    links = _number(answer, "chip:link_bytes_per_second") * _number(answer, "chip:links")
    moved = sum(found.bytes for found in collectives.values())
    return Roofline(flops / (peak * share), accessed / (bandwidth * share), moved / (links * share))


def make_report(answer: dict[str, bytes], **given: object) -> Report:
    """The report of an answer of ``Compiler.compile``."""
    collectives = {}
    for name, value in answer.items():
        if name.startswith("collective:"):
            count, moved = value.split()
            collectives[name.removeprefix("collective:")] = Collective(int(count), int(moved))
    flops = _number(answer, "cost:flops") or 0.0
    accessed = _number(answer, "cost:bytes accessed") or 0.0
    roofline = _roofline(answer, given["topology"], flops, accessed, collectives)
    estimate = _number(answer, "cost:optimal_seconds")
    limit = _number(answer, "chip:hbm_bytes")
    return Report(
        device_kind=answer["device_kind"].decode(),
        devices=int(answer["devices"]),
        compiler=answer["platform_version"].decode(),
        memory=Memory(
            arguments=int(answer["memory:arguments"]),
            outputs=int(answer["memory:outputs"]),
            temporaries=int(answer["memory:temporaries"]),
            code=int(answer["memory:code"]),
            alias=int(answer["memory:alias"]),
            limit=None if limit is None else int(limit),
        ),
        flops=flops,
        bytes_accessed=accessed,
        roofline=roofline,
        compiler_seconds=estimate if estimate is not None and estimate > 0 else None,
        collectives=collectives,
        fingerprint=answer.get("fingerprint", b"").hex(),
        executable=answer.get("executable", b""),
        **given,
    )
