"""Each item of a list in a process of its own, forked from one that has imported everything, within time and memory."""

import json
import math
import os
import resource
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

WAIT = 10  # a child may take so many times its processor time, for it shares the machine


class Worker:
    """A forked process that computes one result and sends it through a pipe as JSON."""

    def __init__(self, item: Any, work: Callable[[Any], dict[str, Any]], seconds: float, memory: int) -> None:
        self.item = item
        self.received = bytearray()
        reading, writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.process = os.fork()
        if self.process == 0:
            os.close(reading)
            run_and_exit(item, work, seconds, memory, writing)
        os.close(writing)
        self.pipe = reading
        self.deadline = time.monotonic() + WAIT * seconds
        self.seconds = seconds

    def receive(self) -> bool:
        """Take what has come; True at the end."""
        part = os.read(self.pipe, 1 << 16)
        self.received += part
        return not part

    def finish(self) -> dict[str, Any]:
        """The result, or what became of the process instead."""
        os.close(self.pipe)
        late = time.monotonic() >= self.deadline
        if late:
            os.kill(self.process, signal.SIGKILL)
        _, status = os.waitpid(self.process, 0)
        if self.received and not late:
            return json.loads(self.received)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGXCPU:
            return {"crash": f"not done after {self.seconds:.0f} s of processor time"}
        if late:
            return {"crash": f"not done after {WAIT * self.seconds:.0f} s"}
        return {"crash": f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"}


def run_and_exit(item: Any, work: Callable, seconds: float, memory: int, writing: int) -> None:
    """The child's whole life. It leaves without the parent's exit handlers."""
    # Address space is reserved generously and costs nothing: what counts is memory that can be written.
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds) + 5))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    if not os.environ.get("SWEEP_VERBOSE"):
        os.dup2(quiet, 2)
    try:
        result = work(item)
    except BaseException:
        result = {"crash": traceback.format_exc()[-2000:]}
    data = json.dumps(result).encode()
    while data:
        data = data[os.write(writing, data) :]
    os._exit(0)


def run_all(
    items: Iterable[Any], work: Callable[[Any], dict[str, Any]], jobs: int, seconds: float, memory: int
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Results as they come, `jobs` processes at a time.

    Parameters
    ----------
    items
        What `work` is called with, in this order.
    work
        Runs in the child; its result goes through JSON.
    jobs
        How many children at a time.
    seconds, memory
        After so much processor time a child is killed; it cannot have more bytes than this.
    """
    waiting = iter(items)
    selector = selectors.DefaultSelector()
    running: set[Worker] = set()
    while True:
        while len(running) < jobs and (item := next(waiting, None)) is not None:
            worker = Worker(item, work, seconds, memory)
            running.add(worker)
            selector.register(worker.pipe, selectors.EVENT_READ, worker)
        if not running:
            return
        ready = [key.data for key, _ in selector.select(timeout=1.0)]
        ended = [worker for worker in ready if worker.receive()]
        ended += [worker for worker in running if time.monotonic() >= worker.deadline and worker not in ended]
        for worker in ended:
            selector.unregister(worker.pipe)
            running.remove(worker)
            yield worker.item, worker.finish()
