"""The page about runs as a reader sees it: in a headless Chromium, wide, on a phone and in print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ragx.experiments.report.make import make_report
from tests.browser import opened
from tests.experiments import reported
from tests.experiments.reported import EVIL, write_demo

DESK, PHONE = {"width": 1000, "height": 900}, {"width": 390, "height": 844}
HEAT = "#figure-2 table.heat"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a demo and a sweep, whose names, questions and passages hold markup that must stay text."""
    root = tmp_path_factory.mktemp("page")
    runs = [write_demo(root / f"demo-{seed}", seed=seed) for seed in (0, 1)]
    runs.append(reported.write_sweep(root / "sweep"))
    return make_report(runs, root / "report.html", title=EVIL, questions=3)[0]


@pytest.fixture(scope="module")
def browser(report: Path) -> Iterator[tuple[Any, list[str]]]:
    with opened(report) as found:
        yield found


@pytest.fixture
def shown(browser: tuple[Any, list[str]], report: Path) -> tuple[Any, list[str]]:
    """The page as it opens on a desk, whatever an earlier test has done with it."""
    page, asked = browser
    page.set_viewport_size(DESK)
    page.emulate_media(media="screen")
    page.goto(report.as_uri())
    return page, asked


def darkness(cell: Any) -> float:
    """How dark a cell is, 0 (white) to 1, of the color that the browser paints over white."""
    painted: str = cell.evaluate("cell => getComputedStyle(cell).backgroundColor")
    parts = [float(part) for part in painted[painted.index("(") + 1 : -1].split(",")]
    opacity = parts[3] if len(parts) == 4 else 1.0
    return opacity * (1 - sum(parts[:3]) / 3 / 255)


def contrast(cell: Any) -> float:
    """WCAG contrast of a cell's text with what is painted behind it over white."""
    colors: list[str] = cell.evaluate("c => [getComputedStyle(c).color, getComputedStyle(c).backgroundColor]")
    lights = []
    for color in colors:
        parts = [float(part) for part in color[color.index("(") + 1 : -1].split(",")]
        opacity = parts[3] if len(parts) == 4 else 1.0
        shares = [(opacity * part + (1 - opacity) * 255) / 255 for part in parts[:3]]
        linear = [s / 12.92 if s <= 0.03928 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def test_heat_maps_are_as_dark_as_their_numbers_and_can_be_read(shown: tuple[Any, list[str]]) -> None:
    """D03: token 1 is of passage 1 (87), token 2 of passage 2 (84); the numbers are in the cells, for print in gray."""
    page, _ = shown
    heat = page.locator(HEAT).first
    assert heat.is_visible()
    cells = [heat.locator("td").nth(i) for i in range(heat.locator("td").count())]
    numbers = [int(cell.inner_text()) for cell in cells]
    assert numbers == [60, 87, 16, 40, 13, 84]
    dark = [darkness(cell) for cell in cells]
    assert sorted(range(6), key=lambda i: dark[i]) == sorted(range(6), key=lambda i: numbers[i])
    assert min(map(contrast, cells)) > 4.4


def test_charts_are_seen_with_their_words(shown: tuple[Any, list[str]]) -> None:
    page, _ = shown
    charts = page.locator("figure svg")
    assert charts.count() == 5  # loss, KL, entropy of the prior, distinct top-1; figure 3
    for i in range(charts.count()):
        box = charts.nth(i).bounding_box()
        assert box["width"] > 250 and box["height"] > 150
        for words in charts.nth(i).locator("text").all():
            own = words.bounding_box()
            assert box["x"] - 1 <= own["x"] and own["x"] + own["width"] <= box["x"] + box["width"] + 1  # none is cut
    written = charts.last.locator("text").all_text_contents()  # innerText is for HTML alone
    assert {"model=rag_token", f"model={EVIL}", "model.n_docs"} <= set(written)
    lines = page.locator("#training svg path[style*='stroke: #0b4aa2']").first
    assert lines.bounding_box()["width"] > 100  # the loss is drawn, not only named
    assert page.locator("#training figcaption").first.inner_text() == "Loss, nats"


def test_the_contents_lead_to_what_is_there(shown: tuple[Any, list[str]]) -> None:
    page, _ = shown
    for link in page.locator("nav a").all():
        link.click()
        heading = page.locator(f"{link.get_attribute('href')} h2")
        assert heading.inner_text() == link.inner_text() and heading.is_visible()
    assert 0 <= page.locator("#environment h2").bounding_box()["y"] < 900
    settings = page.locator("#environment details").last
    assert not settings.locator("table").is_visible()
    settings.locator("summary").click()
    assert settings.locator("table").is_visible() and ".../b/c" in settings.inner_text()


def test_no_request_leaves_the_page_and_what_runs_hold_is_text(shown: tuple[Any, list[str]], report: Path) -> None:
    page, asked_for = shown
    assert {address.split("#")[0] for address in asked_for} == {report.as_uri()}
    assert page.title() == EVIL
    assert page.locator("body b, body script, body img").count() == 0
    assert page.locator("h3").first.inner_text() == f"What {EVIL}?"
    assert page.locator("mark").first.inner_text() == "sun rises"


def test_on_a_phone_only_tables_scroll(shown: tuple[Any, list[str]]) -> None:
    page, _ = shown
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    wide = page.locator("#results .wide").first
    assert wide.evaluate("box => box.scrollWidth > box.clientWidth")
    wide.evaluate("box => { box.scrollLeft = 200 }")
    assert wide.locator("tbody th").first.bounding_box()["x"] >= 0  # the name of a row stays
    words = "[...document.querySelectorAll('p, td, th, summary, figcaption')]"
    sizes = page.evaluate(f"{words}.map(element => parseFloat(getComputedStyle(element).fontSize))")
    assert min(sizes) >= 13
    drawn = page.locator("figure svg text").first.evaluate("t => t.getBoundingClientRect().height")
    assert drawn >= 9


def test_in_print_nothing_is_cut_or_hidden(shown: tuple[Any, list[str]]) -> None:
    page, _ = shown
    page.set_viewport_size({"width": 688, "height": 970})  # A4 between its margins
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 688
    overflow = "[...document.querySelectorAll('.wide')].map(e => getComputedStyle(e).overflowX)"
    assert set(page.evaluate(overflow)) == {"visible"}
    style = "getComputedStyle(document.querySelector('.heat td'))"
    assert page.evaluate(f"{style}.printColorAdjust || {style}.webkitPrintColorAdjust") == "exact"
    assert page.locator("#environment details table").last.is_visible()  # what was folded is printed
    page.set_viewport_size({"width": 480, "height": 700})  # even on A5
    assert page.evaluate("Math.max(...[...document.querySelectorAll('table')].map(t => t.clientWidth))") <= 480
    note = page.locator("#results td small").first  # an interval stays smaller than its figure
    own, above = note.evaluate("e => [e, e.parentElement].map(one => parseFloat(getComputedStyle(one).fontSize))")
    assert own < above
    assert page.pdf(format="A4").startswith(b"%PDF")
