"""The examples of docs/caches.md, in their order, in one folder."""

import re
import shlex

from tests.cli.commands import ROOT, dnnc
from tests.runtime.fake_driver import FakeDriver

BLOCKS = re.findall(
    r"^```(python|sh)\n(.*?)^```$", (ROOT / "docs/caches.md").read_text(), re.DOTALL | re.MULTILINE
)


def test_the_examples_do_what_they_say(cache, tmp_path, monkeypatch):
    FakeDriver().install(monkeypatch)  # a Hopper device to read the properties of
    monkeypatch.chdir(tmp_path)
    names = {}
    counts = {"python": 0, "sh": 0}
    for kind, text in BLOCKS:
        counts[kind] += 1
        if kind == "python":
            exec(compile(text, "docs/caches.md", "exec"), names)
            if "build" in text and not (tmp_path / "ffn.py").exists():
                (tmp_path / "ffn.py").write_text(text.partition("made = ")[0])
            continue
        for line in text.splitlines():
            program, *arguments = shlex.split(line)
            result = dnnc(*arguments)
            assert (program, result.exit_code) == ("dnnc", 0), f"{line}\n{result.output}"
    assert counts == {"python": 7, "sh": 3}
