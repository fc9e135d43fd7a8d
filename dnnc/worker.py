# pyright: basic
"""The compile worker: code generation in a process of its own, which may die without harm.

LLVM ends the process on what it can't select.  Compilations therefore run in one long-lived
child, started as `python -m dnnc.worker` and spoken to over pipes; when it dies, the caller gets
an INTERNAL_ERROR with the request, kept in a file, and the command that repeats it:

    python -m dnnc.worker REQUEST.json

Messages are a JSON object and, where its `bytes` says so, that many bytes after it.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from . import keys, log, outside
from . import target as targets
from .cache import place, plans
from .dialect.graph import OperationGraph
from .errors import DnncError, Status
from .options import DEFAULTS, Options
from .places import place_of_data
from .plan import codec, format
from .plan.plan import Plan
from .progress import BEGIN, STAGES
from .store import MemoryStore, Store
from .target import Target

Report = Callable[[str, float], None]

_LENGTH_BYTES = 8
_END_SECONDS = 10.0
_MOST_MESSAGE, _MOST_PAYLOAD = 256 << 20, 8 << 30  # bytes

# The child's option for the process that it works for.
_OF = "--of"
# How often a child looks for its parent where the system has no descriptors of processes.
_LOOK_SECONDS = 0.5

_log = log.logger(__name__)


# ---- messages


def _send(stream: IO[bytes], message: dict[str, Any], payload: bytes = b"") -> None:
    data = json.dumps({**message, "bytes": len(payload)}).encode()
    stream.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data + payload)
    stream.flush()


class _Malformed(Exception):
    """A message from the worker that is none."""


def _receive(stream: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
    """The next message; None at the end of the stream."""
    head = stream.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        return None
    length = int.from_bytes(head, "little")
    if length > _MOST_MESSAGE:
        raise _Malformed(f"a message of {length} bytes")
    data = stream.read(length)
    if len(data) < length:
        return None
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _Malformed(f"{data[:40]!r}") from error
    following = message.get("bytes") if isinstance(message, dict) else None
    if type(following) is not int or not 0 <= following <= _MOST_PAYLOAD:
        raise _Malformed(f"{data[:40]!r}")
    payload = stream.read(following)
    return (message, payload) if len(payload) == following else None


def _answer(stream: IO[bytes], report: Report) -> tuple[dict[str, Any], bytes] | None:
    """The plan or the error that ends a request, after stages that are reported and what the
    child logs."""
    while (message := _receive(stream)) is not None:
        body, _ = message
        if _is_like(body.get("log"), (str, int, str)):
            name, level, text = body["log"]
            logging.getLogger(name).log(level, "%s", text)
        elif body.get("stage") in (BEGIN, *STAGES) and type(body.get("seconds")) is float:
            report(body["stage"], body["seconds"])
        elif "error" in body or "plan" in body:
            return message
        else:
            raise _Malformed(f"{body!r:.80}")
    return None


def _is_like(values: Any, kinds: tuple[type, ...]) -> bool:
    is_list = isinstance(values, list) and len(values) == len(kinds)
    return is_list and all(type(v) is kind for v, kind in zip(values, kinds, strict=True))


# ---- the caller's side


class Worker:
    """One child process; requests are served one after the other, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: Any = None
        self._owner = 0
        self._is_asked = False

    def start(self) -> None:
        """Starts the child ahead of the first request, so that it loads meanwhile."""
        with self._lock:
            self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        is_ours = self._owner == os.getpid()  # a fork's copy talks to nobody
        if self._process is None or not is_ours or self._process.poll() is not None:
            self._errors = tempfile.TemporaryFile()
            package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
            path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
            self._process = subprocess.Popen(
                # -P: the folder that the user is in is none of the child's packages.
                [sys.executable, "-P", "-m", "dnnc.worker", _OF, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                # What it logs is logged here.
                env={**os.environ, "PYTHONPATH": path, log.VARIABLE: ""},
            )
            self._owner = os.getpid()
            self._is_asked = False
            _log.info("started the compile worker, process %d", self._process.pid)
        return self._process

    def request(self, message: dict[str, Any], report: Report) -> bytes:
        """Sends a request and gives the plan's bytes; an error is raised as it was there."""
        with self._lock:
            process = self._started()
            self._is_asked = True
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                _send(process.stdin, message)
                answer = _answer(process.stdout, report)
            except BrokenPipeError:
                answer = None
            except _Malformed as error:
                self._stop(process)
                raise DnncError(
                    Status.INTERNAL_ERROR,
                    f"the compile worker answered {error}",
                    "a message; a module that prints to the worker's pipe breaks it",
                    "code generation",
                ) from error
            except BaseException:
                self._stop(process)
                raise
            if answer is None:
                raise self._died(process, message)
        body, payload = answer
        if "error" in body:
            raise _error_of(body["error"])
        return payload

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        """Ends a child whose answer nobody reads: the next request would take it for its own."""
        process.kill()
        process.wait()
        self._process = None

    def _died(self, process: subprocess.Popen[bytes], message: dict[str, Any]) -> DnncError:
        try:
            code = process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:  # it closed its pipe and goes on
            process.kill()
            code = process.wait()
        self._process = None
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()[-2000:]
        _log.error("the compile worker ended with status %d", code)
        with tempfile.NamedTemporaryFile(
            "w", suffix=".json", prefix="dnnc-request-", delete=False
        ) as file:
            json.dump(message, file)
        return DnncError(
            Status.INTERNAL_ERROR,
            f"the compile worker ended with status {code}: {said or 'no message'}",
            f"to repeat it: python -m dnnc.worker {file.name}",
            "code generation",
        )

    def close(self) -> None:
        """Ends the child."""
        with self._lock:
            if self._process is not None and self._owner == os.getpid():
                if not self._is_asked:
                    self._process.kill()  # it is still loading what nobody needs
                if self._process.stdin is not None:
                    self._process.stdin.close()
                try:
                    self._process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    self._stop(self._process)
            self._process = None


_worker = Worker()
atexit.register(_worker.close)


def start() -> None:
    """Starts this process's worker, so that it loads while the caller goes on."""
    _worker.start()


def compile_graph(
    graph: OperationGraph,
    target: str | Target | Sequence[Target] = "sm_90",
    options: Options | None = None,
    *,
    cache: bool = True,
    report: Report = lambda stage, seconds: None,
    child: Worker | None = None,
) -> Plan:
    """`dnnc.compiler.compile_graph` in this process's worker.

    options: None for the defaults.  cache: False to compile anew, whatever was kept before; else
    a request that was answered before is answered from this process's memory or from disk, and
    no worker is started for it.  child: the worker that compiles, for callers that have several
    at work.
    Engines and operations from outside the package are known to this process alone: with one, it
    compiles here.
    """
    graph.finalize()
    rows = targets.rows_of(target)
    chosen = options or DEFAULTS
    if outside.is_used():
        return plans.compiled_here(graph, rows, chosen, cache=cache, report=report)
    settings = place.settings()

    def make() -> tuple[bytes, Plan]:
        began = time.perf_counter()
        message = {
            "graph": graph.canonical_text(),
            "places": graph.places(),
            "targets": [row.name for row in rows],
            "options": codec.encode(chosen),
            "cache": codec.encode(settings) if cache else "none",
            "log_level": logging.getLogger("dnnc").getEffectiveLevel(),
        }
        made = (child or _worker).request(message, report)
        _log.debug("answered in %.0f ms", 1e3 * (time.perf_counter() - began))
        plan = format.read(made)
        wanted = keys.plan_key(message["graph"], message["targets"], chosen)
        if plan.key != wanted:
            what = f"the compile worker answered with the plan of key {plan.key:.80}"
            raise DnncError(Status.INTERNAL_ERROR, what, f"that of key {wanted}", "code generation")
        return made, plan

    store = place.store_of(settings) if cache else None
    return plans.kept_or_made(graph, rows, chosen, store, make)


# ---- errors across the pipe


_TEXTS = ("what", "supported", "where", "details")


def _is_record(record: Any) -> bool:
    statuses = [status.value for status in Status]
    if not isinstance(record, dict) or record.get("status") not in statuses:
        return False
    return all(isinstance(record.get(key), str) for key in _TEXTS)


def _error_record(error: BaseException) -> dict[str, Any]:
    if isinstance(error, DnncError):
        texts = {key: getattr(error, key) for key in _TEXTS}
        return {"status": error.status, **texts, "made_at": error.made_at}
    import traceback

    said = "".join(traceback.format_exception(error)).strip()
    texts = {**dict.fromkeys(_TEXTS, ""), "what": said, "where": "compiler"}
    return {"status": Status.INTERNAL_ERROR, **texts}


def _error_of(record: Any) -> DnncError:
    if not _is_record(record):
        what = f"the compile worker answered with the error {record!r:.80}"
        return DnncError(Status.INTERNAL_ERROR, what, "an error of dnnc", "code generation")
    texts = {key: record[key] for key in _TEXTS}
    made_at = place_of_data(record.get("made_at"))
    return DnncError(Status(record["status"]), **texts, made_at=made_at)


# ---- the child's side


def _serve(request: dict[str, Any], report: Report) -> bytes:
    from .compiler import compile_graph
    from .dialect.json_form import from_json

    options = codec.decode(Options, request["options"], "options")
    graph = from_json(json.loads(request["graph"]))
    if "places" in request:  # of a graph that has them
        graph.set_places(request["places"])
    rows = [targets.of(name) for name in request["targets"]]
    store = _store_of(request.get("cache"))
    return format.to_bytes(compile_graph(graph, rows, options, store=store, report=report))


def _store_of(cache: Any) -> Store:
    """The store for code that a request names: "none", null for memory alone, or a place."""
    if cache == "none":
        return MemoryStore()
    return place.store_of(None if cache is None else codec.decode(place.Settings, cache, "cache"))


class _Forwarded(logging.Handler):
    """Sends what is logged to the caller."""

    def __init__(self, stream: IO[bytes]):
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        _send(self._stream, {"log": [record.name, record.levelno, record.getMessage()]})


def _end_with(parent: int) -> None:
    """Ends this process when its parent has ended, however that was.

    The end of the pipe is not enough: it does not come while a request is worked on, or where the
    parent left a fork of itself that holds the pipe open.
    """

    def watch() -> None:
        try:
            descriptor = os.pidfd_open(parent)
        except ProcessLookupError:
            os._exit(1)
        except (AttributeError, OSError):
            while os.getppid() == parent:
                time.sleep(_LOOK_SECONDS)
        else:
            if os.getppid() == parent:  # else it ended before, and its number is another's
                select.select([descriptor], [], [])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run(parent: int) -> None:
    """Answers requests until the caller closes the pipe, or ends."""
    _end_with(parent)
    # ^C is for the caller, which ends the child if nobody waits for its answer any more.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not get between the messages
    from . import compiler  # noqa: F401  (loads the bindings before the first request)

    logs = logging.getLogger("dnnc")
    logs.addHandler(_Forwarded(answers))
    while (received := _receive(sys.stdin.buffer)) is not None:
        request, _ = received
        logs.setLevel(request.get("log_level", logging.WARNING))
        try:
            plan = _serve(request, lambda stage, s: _send(answers, {"stage": stage, "seconds": s}))
        except Exception as error:
            _send(answers, {"error": _error_record(error)})
        else:
            _send(answers, {"plan": True}, plan)


def _repeat(path: str) -> None:
    """Runs the request of a file in this process."""
    with open(path) as file:
        request = json.load(file)
    plan = _serve(request, lambda stage, s: print(f"{stage:8} {1000 * s:8.1f} ms"))
    print(f"{len(plan)} bytes")


if __name__ == "__main__":
    if sys.argv[1] == _OF:
        _run(int(sys.argv[2]))
    else:
        _repeat(sys.argv[1])
