"""Streams and events.

A device runs its work in one order, so a stream is a name for a part of that order: waiting on another stream is
free, and events measure time and completion.
"""

import torch

__all__ = ["Event", "Stream", "StreamContext", "current_stream", "default_stream", "set_stream", "stream"]


def _device(device) -> torch.device:
    from torch_tpu.tpu import _index

    return torch.device("tpu", _index(device))


class Stream(torch.Stream):
    """A stream of a device. Priorities are accepted and mean nothing."""

    def __new__(cls, device=None, priority: int = 0, **kwargs):
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device=_device(device), priority=priority)

    def wait_event(self, event: torch.Event) -> None:
        """Make later work of this stream wait for an event."""
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Make later work of this stream wait for all work of another."""
        self.wait_event(stream.record_event())

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record an event (a new one by default) and return it."""
        event = event if event is not None else Event()
        event.record(self)
        return event


class _TpuEvents(type):
    """Makes ``isinstance(event, torch.tpu.Event)`` true for the events of the device."""

    def __instancecheck__(cls, event) -> bool:
        return isinstance(event, torch.Event) and event.device.type == "tpu"


class Event(metaclass=_TpuEvents):
    """A point in a stream's work, which can be waited for and timed.

    Calling it makes a plain ``torch.Event`` of the device: ``elapsed_time`` takes exactly those and no subclass.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        return torch.Event(device="tpu", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def current_stream(device=None) -> torch.Stream:
    """The current stream of a device."""
    return torch.accelerator.current_stream(_device(device))


def default_stream(device=None) -> torch.Stream:
    """The stream that is current unless another was chosen."""
    device = _device(device)
    return Stream(stream_id=0, device_index=device.index, device_type=int(torch._C._autograd.DeviceType.PrivateUse1))


def set_stream(stream: torch.Stream) -> None:
    """Make a stream current."""
    torch.accelerator.set_stream(stream)


class StreamContext:
    """Context manager that makes a stream current; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.previous = torch.accelerator.current_stream(self.stream.device)
            torch.accelerator.set_stream(self.stream)

    def __exit__(self, *_exception) -> None:
        if self.stream is not None:
            torch.accelerator.set_stream(self.previous)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Return a context in which a stream is current."""
    return StreamContext(stream)
