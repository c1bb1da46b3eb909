"""The TPU compiler, run in processes of its own.

libtpu compiles for a chip by its name alone, but ends the process on some bad programs. So it runs in
``torch_tpu/lib/ttpu-aot-worker`` (src/aot), which is kept between requests, watched, and started again when it died.
"""

import atexit
import contextlib
import importlib.metadata
import importlib.util
import os
import pathlib
import queue
import re
import select
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable

INSTALL = (
    "pip install 'ttpu[libtpu]' (Google's TPU compiler, under a proprietary licence, about 140 MB), or name a copy in "
    "TPU_LIBRARY_PATH"
)

STATUS_NAMES = {
    1: "CANCELLED",
    2: "UNKNOWN",
    3: "INVALID_ARGUMENT",
    4: "DEADLINE_EXCEEDED",
    5: "NOT_FOUND",
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    10: "ABORTED",
    12: "UNIMPLEMENTED",
    13: "INTERNAL",
    14: "UNAVAILABLE",
}

# What the compiler's process needs around it: no search for a metadata server, room for a second process that has
# libtpu, no log files.
ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_LOG_DIR": "disabled",
}


class CompileError(RuntimeError):
    """A program that the TPU compiler did not take.

    Attributes
    ----------
    code : int
        PJRT's code of the failure: 8 where it needs more memory than the chip has, 10 where the compiler died of it, 4
        where it took too long.
    used_bytes, available_bytes : int or None
        With code 8: what the program needs of a device's memory and what there is, as far as the compiler says so.
    """

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.used_bytes, self.available_bytes = _memory_in(message) if code == 8 else (None, None)
        super().__init__(f"{STATUS_NAMES.get(code, f'code {code}')}: {message.strip()}")


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE = r"([\d.]+)([KMGT]?)"
_OVERFLOWS = [
    re.compile(rf"\({_SIZE}\) exceeds available HBM \({_SIZE}\)"),
    re.compile(rf"[Uu]sed {_SIZE}i?B? of {_SIZE}i?B? hbm"),
]


def _memory_in(message: str) -> tuple[int | None, int | None]:
    """The bytes that a program needs and that there are, from the compiler's message."""
    for pattern in _OVERFLOWS:
        if found := pattern.search(message):
            used, used_unit, available, available_unit = found.groups()
            return int(float(used) * _UNITS[used_unit]), int(float(available) * _UNITS[available_unit])
    return None, None


def library_path() -> str:
    """Where libtpu.so is: TPU_LIBRARY_PATH, else the package ``libtpu``.

    Raises
    ------
    ImportError
        If there is none; the message has the line that installs it.
    """
    if path := os.environ.get("TPU_LIBRARY_PATH"):
        if not os.path.exists(path):
            raise ImportError(f"TPU_LIBRARY_PATH names {path}, which does not exist; {INSTALL}")
        return path
    found = importlib.util.find_spec("libtpu")
    if found is None or found.origin is None:
        raise ImportError(f"compiling for TPUs ahead of time needs libtpu, which is not installed: {INSTALL}")
    path = pathlib.Path(found.origin).with_name("libtpu.so")
    if not path.exists():
        raise ImportError(f"the package libtpu in {path.parent} has no libtpu.so; {INSTALL}")
    return str(path)


def library_version() -> str:
    """The version of the package ``libtpu``, or its file's size and time where TPU_LIBRARY_PATH names one."""
    if path := os.environ.get("TPU_LIBRARY_PATH"):
        metadata = list(pathlib.Path(path).parent.parent.glob("libtpu-*.dist-info"))
        if metadata:
            return metadata[0].name.removeprefix("libtpu-").removesuffix(".dist-info")
        return f"{os.path.getsize(path)}-{int(os.path.getmtime(path))}"
    return importlib.metadata.version("libtpu")


def worker_path() -> str:
    """The program that runs the compiler."""
    return str(pathlib.Path(__file__).parent.parent / "lib" / "ttpu-aot-worker")


# ---- one process ----


def _encode(fields: dict[str, bytes]) -> bytes:
    parts = [struct.pack("<I", len(fields))]
    for name, value in fields.items():
        parts += [struct.pack("<IQ", len(name), len(value)), name.encode(), value]
    return b"".join(parts)


class _Reader:
    """Reads a pipe's exact byte counts, calling ``check`` while it waits; EOFError at its end."""

    def __init__(self, stream, check) -> None:
        self.descriptor, self.check = stream.fileno(), check
        self.poll = select.poll()
        self.poll.register(self.descriptor, select.POLLIN)

    def take(self, count: int) -> bytes:
        parts = []
        while count > 0:
            while not self.poll.poll(100):
                self.check()
            part = os.read(self.descriptor, min(count, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def message(self) -> dict[str, bytes]:
        (count,) = struct.unpack("<I", self.take(4))
        fields = {}
        for _ in range(count):
            name, value = struct.unpack("<IQ", self.take(12))
            key = self.take(name).decode()
            fields[key] = self.take(value)
        return fields


class _Worker:
    """One compiler process, started at its first request and again after it died."""

    def __init__(self, library: str, timeout: float, memory: int) -> None:
        self.library, self.timeout, self.memory = library, timeout, memory
        self.process: subprocess.Popen | None = None
        self.errors = None

    def start(self) -> None:
        self.errors = tempfile.TemporaryFile()
        environment = {**ENVIRONMENT, **os.environ}
        self.process = subprocess.Popen(
            [worker_path(), self.library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
        )

    def ask(self, fields: dict[str, bytes]) -> dict[str, bytes]:
        """Send a request; give the answer, or raise what became of it."""
        if self.process is None or self.process.poll() is not None:
            self.close()
            self.start()
        self.errors.seek(0, os.SEEK_END)
        before, began = self.errors.tell(), time.monotonic()

        def check() -> None:
            if time.monotonic() - began > self.timeout:
                raise CompileError(4, f"the TPU compiler took more than {self.timeout:g} s, and was ended")
            if self.resident() > self.memory:
                raise CompileError(
                    8, f"the TPU compiler itself took more than {self.memory / 2**30:.1f} GiB here, and was ended"
                )

        try:
            self.send(_encode(fields), check)
            return _Reader(self.process.stdout, check).message()
        except (EOFError, BrokenPipeError):
            raise CompileError(10, self.obituary(before)) from None
        except BaseException:
            self.close()
            raise

    def send(self, message: bytes, check) -> None:
        descriptor = self.process.stdin.fileno()
        os.set_blocking(descriptor, False)
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        view = memoryview(message)
        while view:
            while not poll.poll(100):
                check()
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(descriptor, view[: 1 << 16]) :]

    def resident(self) -> int:
        try:
            pages = pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        except OSError:
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def obituary(self, before: int) -> str:
        """What killed the process, and what it said of that."""
        code = self.process.wait()
        self.errors.seek(before)
        said = self.errors.read().decode(errors="replace").splitlines()
        # glog's fatal lines name the check that failed; the rest is a trace of addresses
        fatal = [line for line in said if re.match(r"F\d{4} ", line)] or said[-3:]
        died = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        text = " ".join(dict.fromkeys(line.partition("] ")[2] or line for line in fatal))
        return f"the TPU compiler died of this program ({died}): {text or 'it said nothing'}"

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.errors.close()
        self.process = self.errors = None


# ---- several ----


class Compiler:
    """Compiles programs for TPUs by their topology's name, in processes apart.

    Methods may be called from several threads: each call waits for an idle process.

    Parameters
    ----------
    library
        Path of libtpu.so; None finds it (``library_path``).
    workers
        How many processes; each compiles one program at a time.
    timeout
        Seconds for one program, after which its process is ended.
    memory
        Bytes that a process may hold, after which it is ended.
    """

    def __init__(
        self, library: str | None = None, workers: int = 1, timeout: float = 1800.0, memory: int = 16 << 30
    ) -> None:
        library = library_path() if library is None else library
        self._all = [_Worker(library, timeout, memory) for _ in range(workers)]
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        for worker in self._all:
            self._idle.put(worker)

    def _ask(self, **fields: object) -> dict[str, bytes]:
        encoded = {
            name: value if isinstance(value, bytes) else str(value).encode()
            for name, value in fields.items()
            if value is not None
        }
        worker = self._idle.get()
        try:
            answer = worker.ask(encoded)
        finally:
            self._idle.put(worker)
        code = int(answer["status"])
        if code != 0:
            raise CompileError(code, answer.get("message", b"").decode(errors="replace"))
        return answer

    def topology(self, name: str) -> dict[str, bytes]:
        """What the compiler and the published figures say of a topology, by field (src/aot/worker.c)."""
        return self._ask(topology=name)

    def compile(
        self,
        program: str | bytes,
        topology: str,
        *,
        replicas: int = 1,
        partitions: int = 1,
        shardy: bool = False,
        want: Iterable[str] = (),
    ) -> dict[str, bytes]:
        """Compile StableHLO (text, or a portable artifact's bytes); the answer's fields are those of src/aot/worker.c.

        Raises
        ------
        CompileError
            If the compiler refuses the program, dies of it, or takes more time or memory than it may.
        """
        code = program.encode() if isinstance(program, str) else program
        return self._ask(
            topology=topology,
            program=code,
            format="mlir",
            replicas=replicas,
            partitions=partitions,
            shardy=int(shardy),
            want=" ".join(want),
        )

    def close(self) -> None:
        """End the processes; the next call starts them again."""
        for worker in self._all:
            worker.close()


_shared: Compiler | None = None
_shared_pid = 0
_shared_lock = threading.Lock()


def shared_compiler() -> Compiler:
    """The process's own compiler, started at its first use; a forked child has another."""
    global _shared, _shared_pid
    with _shared_lock:
        if _shared is None or _shared_pid != os.getpid():
            _shared, _shared_pid = Compiler(), os.getpid()
            atexit.register(_shared.close)
        return _shared
