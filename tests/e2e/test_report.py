"""The pages in a real browser: nothing is asked for, nothing complained of, all of it readable and reachable."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.record import shrunk
from testbed.record.folder import RunReader
from testbed.report import html
from tests.e2e.browser import Browser, program
from tests.e2e.command import ROOT, Outcome, call
from tests.e2e.conftest import Play
from tests.unit.record.recorded import SHRUNK
from tests.unit.report.pages_of import record

HOSTILE = "<script>document.title='owned'</script></script><img src=x onerror=alert(1)> \u202e\x00 " + "x" * 1_000_000
SCREENS = ((1400, 900), (390, 844))
# axe-core is JavaScript: `npm install axe-core` in the root of the checkout, or AXE_CORE names its axe.min.js.
AXE = Path(os.environ.get("AXE_CORE") or ROOT / "node_modules" / "axe-core" / "axe.min.js")
VIOLATIONS = """
axe.run(document, {resultTypes: ["violations"]}).then((found) =>
  found.violations.map((v) => `${v.impact}: ${v.id}: ${v.nodes.map((n) => n.html.slice(0, 200)).join(" ")}`))
"""

pytestmark = pytest.mark.e2e
needs_browser = pytest.mark.skipif(
    program() is None, reason="no Chromium on the path (apt-get install chromium, or set CHROMIUM to its program)"
)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="session")
def run(played: Play) -> Outcome:
    return played("tenant-leak")


@pytest.fixture(scope="session")
def pages(run: Outcome, home: Path) -> dict[str, Path]:
    """A page of each kind; ``hostile`` is a run whose texts all try to break out."""
    results = home / "pages"
    folder = record(
        results, n=40, question=HOSTILE, answer=HOSTILE, tenant=HOSTILE[:60], summary={"about": HOSTILE[:200]}
    )
    for number in (1, 2):  # one in place of the recorded witness, one folded below it
        shrunk.keep(RunReader(folder), SHRUNK | {"violation": number, "story": [HOSTILE] * 3, "notes": [HOSTILE[:200]]})
    return {
        "run": run.folder / "report.html",
        "hostile": html.write_report(folder),
        "comparison": html.write_comparison(folder, folder, across=(), out=results / "both.html", results=results),
        "index": html.write_index(results),
    }


def shot(browser: Browser, name: str) -> None:
    """Kept where SCREENSHOTS names a folder, to be looked at."""
    if folder := os.environ.get("SCREENSHOTS"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        browser.screenshot(Path(folder) / f"{name}.png")


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SCREENS)
@pytest.mark.parametrize("kind", ["run", "hostile", "comparison", "index"])
def test_pages_open_without_request_or_complaint(
    browser: Browser, pages: dict[str, Path], kind: str, width: int, height: int, dark: bool
) -> None:
    seen = browser.open(pages[kind], width=width, height=height, dark=dark)
    shot(browser, f"{kind}-{width}-{'dark' if dark else 'light'}")
    assert seen.requests == [] and seen.complaints == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width, "the page must not scroll sideways"
    assert browser.evaluate("document.title") != "owned"
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in background.strip("rgb()").split(","))
    assert (brightness < 200) == dark


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SCREENS)
@pytest.mark.parametrize("kind", ["run", "hostile", "comparison", "index"])
def test_axe_finds_nothing_serious(
    browser: Browser, pages: dict[str, Path], kind: str, width: int, height: int, dark: bool
) -> None:
    if not AXE.is_file():
        pytest.skip("no axe-core (npm install axe-core in the root of the checkout, or AXE_CORE=<axe.min.js>)")
    browser.open(pages[kind], width=width, height=height, dark=dark)
    browser.evaluate(f"{AXE.read_text()};0")
    assert browser.evaluate(VIOLATIONS) == []


@needs_browser
def test_the_first_screen_tells_the_story(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["run"], width=1400, height=900)
    for element in ("#verdict", ".tiles", ".arms tr:last-child", ".quadrants"):
        bottom = browser.evaluate(f"[...document.querySelectorAll('{element}')].pop().getBoundingClientRect().bottom")
        assert bottom <= 900, element


@needs_browser
def test_questions_filter_and_sort(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["run"], width=1400, height=900)
    shown = "[...document.querySelectorAll('#rows tbody tr')].filter((row) => !row.hidden)"
    total = browser.evaluate(f"{shown}.length")
    assert total == 60
    choose = "(e, v) => { e.value = v; e.dispatchEvent(new Event('input', {bubbles: true})); }"
    browser.evaluate(f"({choose})(document.getElementById('mark'), 'leaked')")
    leaked = browser.evaluate(f"{shown}.length")
    assert 0 < leaked < total
    assert browser.evaluate(f"{shown}.every((row) => row.cells[7].textContent.includes('leaked'))")
    assert browser.evaluate("document.getElementById('count').textContent") == f"{leaked} of {total} shown"
    browser.evaluate(f"({choose})(document.getElementById('mark'), '')")
    word = browser.evaluate("document.querySelector('#rows tbody tr').cells[2].textContent")
    browser.evaluate(f"({choose})(document.getElementById('find'), {word!r})")
    assert browser.evaluate(f"{shown}.every((row) => row.textContent.includes({word!r}))")
    browser.evaluate(f"({choose})(document.getElementById('find'), '')")
    heads = "document.querySelectorAll('#rows thead th')"
    for expected in ("ascending", "descending"):
        browser.evaluate(f"{heads}[0].querySelector('button').click()")
        assert browser.evaluate(f"{heads}[0].getAttribute('aria-sort')") == expected
        ops = browser.evaluate(f"{shown}.map((row) => Number(row.cells[0].textContent))")
        assert ops == sorted(ops, reverse=expected == "descending")


@needs_browser
def test_all_controls_are_reached_by_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["run"], width=1400, height=900)
    reached = []
    for _ in range(60):
        browser.press("Tab", 9)
        reached.append(browser.evaluate("(document.activeElement.id || document.activeElement.className)"))
    assert reached[0] == "skip"
    assert {"theme", "find", "mark", "layer"} <= set(reached) and "scroll rows" in reached


@needs_browser
def test_the_theme_button_goes_round(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["run"], width=1400, height=900)
    told = [browser.evaluate("theme.click(); theme.textContent") for _ in range(3)]
    assert sorted(told) == ["Theme: auto", "Theme: dark", "Theme: light"]


@needs_browser
def test_without_scripts_all_of_it_is_there(browser: Browser, pages: dict[str, Path]) -> None:
    seen = browser.open(pages["run"], width=390, height=844, script=False)
    assert seen.complaints == []
    shown = browser.evaluate("[...document.querySelectorAll('#rows tbody tr')].filter((r) => r.offsetHeight).length")
    assert shown == 60
    assert browser.evaluate("document.getElementById('filters').offsetHeight") == 0


def test_a_run_leaves_its_page_and_says_where(home: Path, run: Outcome) -> None:
    page = run.folder / "report.html"
    made = page.read_bytes()
    page.unlink()
    ran = call(home, "report", run.digest[:8])
    assert (ran.code, ran.err) == (0, "") and ran.out.strip().endswith("report.html")
    assert page.read_bytes() == made
    assert call(home, "show", run.digest[:8]).code == 0, "the page is no part of the run"


def test_charts_and_an_index_are_one_command_each(home: Path, run: Outcome, tmp_path: Path) -> None:
    ran = call(
        home, "report", "tenant-leak", "--out", str(tmp_path / "page.html"), "--charts", str(tmp_path / "charts")
    )
    assert ran.code == 0, ran.err
    names = {path.name for path in (tmp_path / "charts").iterdir()}
    assert {"heatmap.svg", "heatmap.png", "blame.svg", "fixes.png"} <= names
    ran = call(home, "report", "--index", "--out", str(tmp_path / "index.html"))
    assert ran.code == 0 and run.folder.name in (tmp_path / "index.html").read_text()


def test_a_comparison_is_a_page_too(home: Path, run: Outcome, tmp_path: Path) -> None:
    page = tmp_path / "both.html"
    ran = call(home, "compare", "tenant-leak", run.digest[:8], "--format", "html", "--out", str(page))
    assert ran.code == 0 and "the same, event for event" in page.read_text()


@pytest.mark.parametrize("argv", [["report"], ["report", "nothing-like-it"]])
def test_a_run_that_is_not_there_is_one_line(home: Path, argv: list[str]) -> None:
    ran = call(home, *argv)
    assert ran.code == 2 and ran.err.count("\n") == 1 and "testbed list --runs" in ran.err


@pytest.fixture(scope="session")
def long_run(home: Path) -> tuple[Path, float]:
    folder = record(home / "long", n=100_000)
    start = time.process_time()  # of this process: what else the machine does is not measured
    page = html.write_report(folder)
    return page, time.process_time() - start


def test_a_hundred_thousand_questions_make_a_small_page_in_seconds(long_run: tuple[Path, float]) -> None:
    page, seconds = long_run
    assert seconds < 20 and page.stat().st_size < 3_000_000
    assert "of 100,000 questions" in page.read_text()


@needs_browser
def test_the_page_of_a_hundred_thousand_questions_opens(browser: Browser, long_run: tuple[Path, float]) -> None:
    seen = browser.open(long_run[0], width=1400, height=900)
    assert seen.requests == [] and seen.complaints == []
    rows: Any = browser.evaluate("document.querySelectorAll('#rows tbody tr').length")
    assert 1000 <= rows <= 1002
