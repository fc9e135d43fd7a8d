"""The bar charts of docs/performance: their numbers are those of the tables, and the files are
what the script draws."""

import json
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import results
from benchmarks.charts import CHARTS, RESULTS, SERIES, Chart
from benchmarks.plots import FOLDER, svg

DOCS = Path(__file__).parent.parent.parent / "docs"
OF_RATES = [chart for chart in CHARTS if type(chart) is Chart]


def texts(svg_text):
    """The numbers of a chart, each with how often it stands there."""
    root = ElementTree.fromstring(svg_text)
    return Counter(
        "".join(element.itertext()).strip()
        for element in root.iter()
        if element.tag.endswith("}text")
    )


def named(chart):
    return chart.name


@pytest.mark.parametrize("chart", OF_RATES, ids=named)
def test_numbers_are_those_of_the_tables(chart):
    data = json.loads((RESULTS / f"{chart.file}.json").read_text())
    match = "|".join(f"^{re.escape(name)}$" for _, name in chart.rows)
    lines = results.markdown(data, match).splitlines()
    for (_, name), group in zip(chart.rows, chart.groups(), strict=True):
        case = name.partition("/")[2]
        (line,) = [line for line in lines if line.startswith(f"| {case} |")]
        cells = [cell.strip() for cell in line.split("|")]
        header = next(
            text for text in reversed(lines[: lines.index(line)]) if text.startswith("| case |")
        )
        columns = [cell.strip() for cell in header.split("|")]
        shown = {
            column: cell.partition(" ")[0]
            for column, cell in zip(columns, cells, strict=True)
            if column in SERIES and re.match(r"\d", cell)
        }
        assert {column: str(value) for column, value in group.values.items()} == shown


@pytest.mark.parametrize("chart", CHARTS, ids=named)
def test_files_are_what_the_script_draws(chart):
    kept = texts((FOLDER / f"{chart.name}.svg").read_text())
    assert kept == texts(svg(chart))
    for group in chart.groups():
        assert kept[group.label] == 1
        for value in group.values.values():
            assert kept[f"{value:g}"] >= 1


@pytest.mark.parametrize("chart", CHARTS, ids=named)
def test_pages_show_them(chart):
    page = (DOCS / chart.page).read_text()
    assert (
        len(re.findall(rf"!\[[^]]+\]\((\.\./)?pictures/performance/{chart.name}\.svg\)", page)) == 1
    )


def test_there_are_no_others():
    assert {path.name for path in FOLDER.iterdir()} == {f"{chart.name}.svg" for chart in CHARTS}


def test_drawn_twice_they_are_the_same_bytes(tmp_path):
    made = [svg(CHARTS[0]), svg(CHARTS[0])]
    assert made[0] == made[1]
    assert "<dc:date>" not in made[0]


def test_another_unit_is_refused():
    wrong = Chart("a", "a.md", "A", "GB/s", "kernels-hopper-h100", OF_RATES[0].rows)
    with pytest.raises(ValueError, match="is in TFLOP/s, the chart in GB/s"):
        wrong.groups()
