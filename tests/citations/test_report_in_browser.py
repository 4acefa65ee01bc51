"""report.html as a reader sees it: in a headless Chromium, wide, on a phone and in print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import opened
from tests.citations.test_report import EVIL, asked, page

HEAT = "table.heat"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a RAG-Token answer of two tokens; its title and passages hold markup that must stay text."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(asked()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def shown(report: Path) -> Iterator[tuple[Any, list[str]]]:
    with opened(report) as found:
        yield found


def colour(page: Any, row: int, token: int) -> float:
    """How dark a cell of the heat map is, 0 to 1, as the browser paints it."""
    cell = page.locator(f"{HEAT} tr").nth(row).locator("td").nth(token)
    painted: str = cell.evaluate("cell => getComputedStyle(cell).backgroundColor")
    parts = painted[painted.index("(") + 1 : -1].split(",")
    return float(parts[3]) if len(parts) == 4 else 1.0


def test_the_heat_map_of_figure_2_is_visible_and_dark_where_the_posterior_is(shown: tuple[Any, list[str]]) -> None:
    """D03: the first token is of passage 1 (.87), the second of passage 2 (.84)."""
    page, _ = shown
    heat = page.locator(HEAT)
    assert heat.is_visible() and heat.bounding_box()["height"] > 40
    assert [colour(page, row, token) for row, token in ((1, 1), (1, 2), (2, 1), (2, 2))] == [0.87, 0.16, 0.13, 0.84]
    assert heat.locator("td.dark").count() == 2


def test_a_citation_opens_its_passage_at_the_exact_span(shown: tuple[Any, list[str]]) -> None:
    page, _ = shown
    link = page.locator(".answer sup a").first
    link.click()
    assert page.url.endswith(link.get_attribute("href"))
    mark = page.locator(".passage:target mark")
    assert mark.inner_text() == EVIL[:8] and mark.is_visible()
    box, seen = mark.bounding_box(), page.viewport_size
    assert 0 <= box["y"] < seen["height"]
    assert page.locator("body b, body script, body img").count() == 0  # what passages hold is text


def test_no_request_leaves_the_page(shown: tuple[Any, list[str]], report: Path) -> None:
    page, asked_for = shown
    assert {address.split("#")[0] for address in asked_for} == {report.as_uri()}
    assert page.title() == "Citation audit"


def test_on_a_phone_nothing_runs_out_of_the_side(shown: tuple[Any, list[str]]) -> None:
    page, _ = shown
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator(HEAT).is_visible()
    assert page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 14
    meaning = page.locator("tr.meaning td").first  # what a figure means has the whole width, not a sliver beside it
    assert meaning.bounding_box()["width"] > 300 and meaning.bounding_box()["height"] < 60


def test_counts_stand_side_by_side_where_there_is_room(shown: tuple[Any, list[str]]) -> None:
    page, _ = shown
    for width, rows in ((1000, 1), (390, 2)):
        page.set_viewport_size({"width": width, "height": 900})
        tops = {round(table.bounding_box()["y"]) for table in page.locator(".counts").first.locator("table").all()}
        assert page.locator(".counts").first.locator("table").count() == 2 and len(tops) == rows


def test_in_print_the_marks_stay_and_no_table_is_cut(shown: tuple[Any, list[str]]) -> None:
    page, _ = shown
    page.emulate_media(media="print")
    style = "getComputedStyle(document.querySelector('mark'))"
    assert page.evaluate(f"{style}.printColorAdjust || {style}.webkitPrintColorAdjust") == "exact"
    assert page.evaluate("getComputedStyle(document.querySelector('.wide')).overflowX") == "visible"
    assert page.pdf(format="A4").startswith(b"%PDF")
