"""Timers that need no device, and graphs to tune."""

import dnnc
from dnnc.errors import DnncError, Status


def ffn(rows=None, name="ffn", x="x"):
    """relu(x @ w), of fp16; rows: None for a symbol."""
    rows = rows or dnnc.Dim("M", max=4096)
    g = dnnc.pygraph(name, io_data_type="HALF", intermediate_data_type="FLOAT")
    g.relu(g.matmul(g.tensor([1, rows, 64], name=x), g.tensor([1, 64, 64]))).set_output()
    return g


def choice_of(plan):
    """The choice of a plan of one fusion, as candidates have it."""
    from dnnc.choosing.choice import choice_text

    (fusion,) = plan.programs[0].fusions
    return choice_text(fusion.engine, fusion.knobs)


class FakeTimer:
    """Gives each choice the seconds that a function says; calls: how often each was run."""

    device, driver, target, l2 = "a fake device", "13.0", "sm_80", "warm"

    def __init__(self, seconds):
        self.seconds, self.calls, self.is_closed = seconds, {}, False

    def load(self, plan, sizes):
        text = choice_of(plan)
        found = self.seconds(text, dict(sizes))
        if found is None:
            raise DnncError(Status.EXECUTION_FAILED, "it does not run", "another device")

        def run(calls):
            self.calls[text] = self.calls.get(text, 0) + calls
            return found

        return run

    def close(self):
        self.is_closed = True


class CountingClock:
    """A second a launch; launches as often as it is asked to."""

    stream = 0

    def __init__(self):
        self.is_closed = False

    def seconds(self, call, calls):
        for _ in range(calls):
            call()
        return 1.0

    def close(self):
        self.is_closed = True
