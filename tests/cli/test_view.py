"""`dnnc view`: pages of graphs and plans; hostile names; what is wrong writes no page."""

import importlib.util
from dataclasses import replace

import pytest

from dnnc.plan import format
from tests.view.pages import Page

from .commands import SPLIT, dnnc, error_of

HOSTILE = """\
import dnnc

NAME = "<script>alert('x')</script>&amp;\\"\\u202e\\x1b[31m"


def build():
    g = dnnc.pygraph(NAME, io_data_type="HALF", compute_data_type="FLOAT")
    x = g.tensor([4, 8], name=NAME)
    g.relu(x, name="</text></svg><img src=x onerror=alert(1)>").set_output(True).set_name(NAME)
    return g
"""


def view(*arguments):
    """The page that a command writes, parsed, and its text."""
    result = dnnc("view", *arguments, "-o", "page.html")
    assert result.exit_code == 0, result.output
    with open("page.html", encoding="utf-8") as file:
        text = file.read()
    assert result.stdout == f"page.html: {len(text):,} bytes\n"
    return Page(text), text


@pytest.fixture(scope="module")
def page(folder, tmp_path_factory):
    """(page, plan) of the graph of `folder`, with the configs that it has for sm_90a."""
    made = tmp_path_factory.mktemp("view")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        parsed, _ = view(folder / "ffn.py", "--target", "sm_90a")
        result = dnnc("compile", folder / "ffn.py", "--target", "sm_90a", "-o", "ffn.dnnplan")
        assert result.exit_code == 0
    return parsed, format.read(made / "ffn.dnnplan")


def test_it_loads_and_runs_nothing(page):
    parsed, _ = page
    tags = {tag for tag, _ in parsed.elements}
    assert not tags & {"script", "img", "iframe", "link", "object", "embed", "base", "form"}
    links = [value for _, a in parsed.elements for name, value in a.items() if name == "href"]
    assert links
    assert all(link.startswith("#") for link in links)
    ids = {a["id"] for _, a in parsed.elements if "id" in a}
    assert {link[1:] for link in links} <= ids
    assert not any(name in a for _, a in parsed.elements for name in ("src", "onload", "onclick"))
    assert "url(" not in parsed.texts["style"][0]
    assert "@import" not in parsed.texts["style"][0]
    (policy,) = [a["content"] for _, a in parsed.elements if "http-equiv" in a]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_every_kernel_is_there(page):
    parsed, plan = page
    (program,) = plan.programs
    assert len(program.kernels) == 2
    cards = parsed.texts["article"]
    assert len(cards) == len(parsed.of("g", class_="dot")) == 2
    for card, kernel, fusion in zip(cards, program.kernels, program.fusions, strict=True):
        assert kernel.name in card
        assert f"{kernel.registers} a thread" in card
        assert f"TILE_M={fusion.knobs['TILE_M']}" in card
        assert "bound by" in card
    assert "at M = 1,024" in cards[1]


def test_the_graph_is_drawn(page):
    parsed, _ = page
    assert len(parsed.of("g", class_="frame")) == 2  # its box, then its head
    assert len(parsed.of("g", class_="anchor")) == 1
    assert len(parsed.of("g", class_="pointwise")) == 2
    assert len(parsed.of("g", class_="input")) == 3
    assert len(parsed.of("g", class_="output")) == 1
    assert len(parsed.of("path", class_="arrow")) == 3 + 2 + 1


def test_stages_are_those_of_compile(page, ffn):
    parsed, plan = page
    stages = [stage for stage, _ in parsed.stages]
    assert stages[:7] == ["graph", "fused", "linalg", "kernel", "nvvm", "ptx", "ptx"]
    # The config for M = 1024 is the second one, which compile's texts of one config don't say.
    texts = {stage: text.replace(", dnn.variant = 1 : i64", "") for stage, text in parsed.stages}
    for stage in ("graph", "linalg"):
        printed = dnnc("compile", ffn, "--target", "sm_90a", "--emit", stage).stdout
        assert printed.strip() == texts[stage].strip()
    ptx = [text for stage, text in parsed.stages if stage == "ptx"]
    assert ptx == [plan.text(module.ptx) for module in plan.programs[0].modules]


def test_a_plan_of_several_targets(plan, here):
    parsed, _ = view(plan)
    made = format.read(plan)
    assert [a["id"] for a in parsed.of("section") if "id" in a] == ["sm_80", "sm_90a"]
    cards = "".join(parsed.texts["article"])
    assert all(kernel.name in cards for program in made.programs for kernel in program.kernels)
    assert {stage for stage, _ in parsed.stages} <= {"ptx", "sass"}
    assert [stage for stage, _ in parsed.stages].count("ptx") == 2
    assert len(parsed.of("svg", class_="roofline")) == 2
    parsed, _ = view(plan, "--target", "sm_90a")
    assert [a["id"] for a in parsed.of("section") if "id" in a] == ["sm_90a"]


def test_machine_code_where_there_is_a_disassembler(plan, here, monkeypatch):
    from dnnc.cli import sass
    from dnnc.cli import view as command

    def absent():
        raise sass.DnncError(sass.Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING, "none")

    monkeypatch.setattr(command, "disassembled", lambda cubin: "IMAD R1")
    monkeypatch.setattr(command, "find_tool", lambda: ("nvdisasm", "nvdisasm"))
    parsed, _ = view(plan)
    assert [text for stage, text in parsed.stages if stage == "sass"] == ["IMAD R1"] * 2
    monkeypatch.setattr(command, "find_tool", absent)
    parsed, _ = view(plan)
    assert {stage for stage, _ in parsed.stages} == {"ptx"}


def test_several_fusions(here):
    """Both are the same kernel: each has its frame, its card and its dot."""
    (here / "twice.py").write_text(SPLIT)
    parsed, _ = view("twice.py", "--target", "sm_80")
    assert len(parsed.of("g", class_="frame")) == 4
    assert len(parsed.of("g", class_="stored")) == 1
    cards = parsed.texts["article"]
    assert ["matmul 'first'" in card for card in cards] == [True, False]
    assert ["matmul 'second'" in card for card in cards] == [False, True]
    assert len(parsed.of("g", class_="dot")) == 2
    assert "Why the graph is 2 fusions" in parsed.texts["summary"]


def test_plans_of_earlier_versions(here):
    """They do not say which operations and launches are whose."""
    (here / "twice.py").write_text(SPLIT)
    assert dnnc("compile", "twice.py", "--target", "sm_80", "-o", "new.dnnplan").exit_code == 0
    made = format.read("new.dnnplan")
    (program,) = made.programs
    before = tuple(replace(f, places=(), steps=0) for f in program.fusions)
    program = replace(program, fusions=before)
    format.write("old.dnnplan", replace(made, programs=(program,)))
    parsed, _ = view("old.dnnplan")
    (card,) = parsed.texts["article"]
    assert all(kernel.name in card for kernel in program.kernels)
    assert "compile it again" in card
    assert "compile it again" in parsed.texts["figcaption"][0]
    assert not parsed.of("g", class_="frame")
    assert len(parsed.of("g", class_="anchor")) == 2


def test_hostile_names(here):
    (here / "hostile.py").write_text(HOSTILE)
    parsed, text = view("hostile.py", "--target", "sm_80")
    tags = {tag for tag, _ in parsed.elements}
    assert not tags & {"script", "img"}
    shown = "<script>alert('x')</script>&amp;\"\\u202e\\x1b[31m"
    assert parsed.texts["h1"] == [shown]
    assert parsed.texts["title"][0] == f"{shown} - dnnc"
    assert any("</text></svg><img src=x onerror=alert(1)>" in t for t in parsed.texts["title"])
    assert not set("\x1b\u202e\x00") & set(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ffn.py", "--size", "N=4"), "no size is called 'N'"),
        (("ffn.py", "--size", "M=5000"), "M = 5000"),
        (("ffn.py", "--engine", "none"), "engine 'none'"),
        (("ffn.dnnplan", "--engine", "matmul_sm80"), "for a plan, which is compiled"),
        (("ffn.dnnplan", "--target", "sm_120"), "the plan has no code for sm_120"),
        (("ffn.py", "--plan", "ffn"), "--plan ffn of a graph"),
        (("ffn.txt",), "suffix '.txt'"),
        (("none.dnnplan",), "can't be read"),
    ],
)
def test_what_is_wrong_writes_nothing(arguments, said, folder, here):
    file, *others = arguments
    page = here / "page.html"
    page.write_text("before")
    result = dnnc("view", folder / file, "--no-cache", *others, "-o", page)
    assert said in error_of(result)
    assert page.read_text() == "before"
    assert list(here.iterdir()) == [page]


@pytest.mark.parametrize("absent", ["jinja2", "pygraphviz"])
def test_without_its_packages(absent, plan, here, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == absent else found(name)
    )
    said = error_of(dnnc("view", plan))
    assert said.endswith(f'{absent} not installed; accepted: pip install "dnnc[view]"')
    assert not list(here.iterdir())


def test_the_page_is_named_for_the_file(plan, here):
    assert dnnc("view", plan).exit_code == 0
    assert [path.name for path in here.iterdir()] == ["ffn.html"]
