"""The compile worker answers with messages, and nothing else is taken for one."""

import io
import json
import os
import sys

import pytest

import dnnc
from dnnc import worker
from dnnc.errors import DnncError, Status
from dnnc.plan import format


def graph(n=5):
    g = dnnc.pygraph("answered", io_data_type="FLOAT", intermediate_data_type="FLOAT")
    g.exp(g.tensor([3, n])).set_output()
    return g.graph.finalize()


def frame(message, payload=b"", length=None):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    size = len(data) if length is None else length
    return size.to_bytes(8, "little") + data + payload


GOOD_ERROR = {"status": int(Status.BAD_PARAM), "what": "w", "supported": "s", "where": "at"}
GOOD_ERROR |= {"details": "d", "made_at": ["/models/ffn.py", 12, 0]}
FRAMES = {
    "no message": b"hello, world: a print",
    "a length of 2**63": frame(b"{}", length=1 << 63),
    "not JSON": frame(b"{nonsense"),
    "deep": frame(b"[" * 200_000),
    "a list": frame([1, 2]),
    "no count of bytes": frame({"plan": True}),
    "a negative count": frame({"plan": True, "bytes": -1}),
    "a huge count": frame({"plan": True, "bytes": 1 << 62}),
    "a count of another type": frame({"plan": True, "bytes": "7"}),
    "less than it says": frame({"plan": True, "bytes": 100}, b"short"),
    "nothing known": frame({"bytes": 0}),
    "a log of another form": frame({"log": 5, "bytes": 0}),
    "a stage of another form": frame({"stage": [], "seconds": "x", "bytes": 0}),
    "an error of no status": frame({"error": {**GOOD_ERROR, "status": 10**9}, "bytes": 0}),
    "an error without details": frame({"error": {**GOOD_ERROR, "details": 7}, "bytes": 0}),
    "an error that is a text": frame({"error": "bad", "bytes": 0}),
    "no plan": frame({"plan": True, "bytes": 4}, b"junk"),
    "nothing": b"",
}


class Answering(worker.Worker):
    """A worker whose child is a process that answers with given bytes, and waits."""

    def __init__(self, answer, tmp_path):
        super().__init__()
        file = tmp_path / "answer"
        file.write_bytes(answer)
        code = (
            "import sys, time; sys.stdin.buffer.read(8);"
            f"sys.stdout.buffer.write(open({str(file)!r}, 'rb').read()); sys.stdout.flush()"
        )
        self.command = [sys.executable, "-S", "-c", code]

    def _started(self):
        import subprocess
        import tempfile

        self._errors = tempfile.TemporaryFile()
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        return self._process


@pytest.mark.parametrize("name", FRAMES)
def test_what_is_no_message_is_an_error(name, tmp_path):
    child = Answering(FRAMES[name], tmp_path)
    with pytest.raises(DnncError):
        worker.compile_graph(graph(), "sm_80", cache=False, child=child)
    child.close()


def test_the_plan_of_another_graph_is_an_error(tmp_path):
    plan = format.to_bytes(dnnc.compile(graph(7), "sm_80", cache=False))
    child = Answering(frame({"plan": True, "bytes": len(plan)}, plan), tmp_path)
    with pytest.raises(DnncError, match="answered with the plan of key"):
        worker.compile_graph(graph(), "sm_80", cache=False, child=child)
    child.close()


def test_an_error_is_raised_as_it_was_there(tmp_path):
    child = Answering(frame({"error": GOOD_ERROR, "bytes": 0}), tmp_path)
    with pytest.raises(DnncError, match=r"BAD_PARAM: ffn\.py:12: at: w; accepted: s") as found:
        worker.compile_graph(graph(), "sm_80", cache=False, child=child)
    child.close()
    assert (found.value.made_at, found.value.details) == (("/models/ffn.py", 12, 0), "d")


def test_a_message_is_read_as_it_was_sent():
    stream = io.BytesIO()
    worker._send(stream, {"plan": True}, b"bytes")
    stream.seek(0)
    assert worker._receive(stream) == ({"plan": True, "bytes": 5}, b"bytes")
