"""Two threads: what one does with the device while the other records a whole function is no part of that function."""

import threading
from collections.abc import Callable

import torch
from torch import nn
from torch_tpu import _C
from torch_tpu.aot.program import capture


class Meanwhile:
    """Lets another thread begin to use the device, and goes on while that one waits."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.begun, self.results, self.error = threading.Event(), [], None
        self.thread = threading.Thread(target=self._run, args=(work,))

    def _run(self, work: Callable[[], object]) -> None:
        self.begun.set()
        try:
            self.results.append(work())
        except Exception as error:  # the thread's, for the test to see
            self.error = error

    def begin(self) -> None:
        """In the function that is recorded; it may be called more than once."""
        if self.thread.ident is None:
            self.thread.start()
            assert self.begun.wait(10)
            self.thread.join(0.2)

    def end(self) -> object:
        self.thread.join(30)
        assert not self.thread.is_alive(), "the other thread waits for ever"
        if self.error is not None:
            raise self.error
        return self.results[0]


def other_work() -> Callable[[], float]:
    x = torch.arange(64.0, device="tpu")
    torch.tpu.synchronize()
    return lambda: (x.add_(1.0) * 2.0).sum().item()


EXPECTED = float((torch.arange(64.0) + 1).mul(2).sum())


def test_captured_for_the_compiler() -> None:
    meanwhile = Meanwhile(other_work())
    model = nn.Linear(8, 8).to("tpu")

    def step(x: torch.Tensor) -> torch.Tensor:
        y = model(x).square()
        meanwhile.begin()
        y.sum().backward()  # in a thread of autograd's, which records for this one
        return y

    x = torch.randn(4, 8, device="tpu")
    program = capture(step, (x,))
    assert meanwhile.end() == EXPECTED
    text = program.text()
    assert "64x" not in text and "dot_general" in text


def test_recorded_by_compile() -> None:
    meanwhile = Meanwhile(other_work())

    @torch.library.custom_op("ttpu_test::slow_identity", mutates_args=())
    def slow_identity(x: torch.Tensor) -> torch.Tensor:
        meanwhile.begin()
        return x.clone()

    slow_identity.register_fake(torch.empty_like)
    compiled = torch.compile(lambda x: torch.ops.ttpu_test.slow_identity(x * 2.0) + 1.0)
    x = torch.arange(4.0, device="tpu")
    assert compiled(x).tolist() == [1, 3, 5, 7]
    assert meanwhile.end() == EXPECTED
    x += 1
    before = torch.tpu.counters()["ops_recorded"]
    assert compiled(x).tolist() == [3, 5, 7, 9]
    assert torch.tpu.counters()["ops_recorded"] == before, "it was recorded anew"


def test_a_branch() -> None:
    meanwhile = Meanwhile(other_work())
    x = _C.make_absent(torch.arange(4.0, device="tpu"))
    region = _C.Region(0, [x])
    y = x.sin()
    meanwhile.begin()
    text = region.end([y])
    assert meanwhile.end() == EXPECTED
    assert "64x" not in text and "sine" in text
