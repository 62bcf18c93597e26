"""The page in a real browser: it draws, complains of nothing, answers the pointer, filters, sorts and prints."""

import pytest
from playwright.sync_api import sync_playwright

from planner.render.page import page_of, shown_plan, shown_study
from tests.browser.conftest import BROWSER
from tests.planner.page_samples import EVIL, results, saved, small_plan

SCREENS = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "phone": {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2, "has_touch": True},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    study = page_of(shown_study(results(), f"networks {EVIL}", ("gpus", "cluster")))
    return {
        "study": saved(folder, study, "study.html").as_uri(),
        "plan": saved(folder, page_of(shown_plan(small_plan())), "plan.html").as_uri(),
    }


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser, pages):
    """Opens a page offline; whatever the browser complains of fails the test."""
    complaints, contexts = [], []

    def opened(name, screen="desktop"):
        contexts.append(browser.new_context(offline=True, **SCREENS[screen]))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.extend([] if request.url == pages[name] else [request.url]))
        page.goto(pages[name])
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def headings(page):
    return [text for text in page.locator("section:visible h2").all_inner_texts() if text]


def test_a_study_shows_every_figure_that_applies(open_page):
    page = open_page("study")
    glance = ["All plans at a glance", "What decides the result", "Filter"]
    figures = ["Scaling", "Two axes", "Pareto front", "Where the time goes", "Points", "How far to trust it"]
    assert headings(page) == [*glance, *figures, "Assumptions and sources"]
    assert page.locator("header h1").inner_text().startswith("8 points, 6 with a plan.")
    assert page.title() == f"networks {EVIL}"
    assert page.locator("section:has(h2:text-is('Scaling')) svg[role=img]").count() == 3


def test_a_plan_opens_with_its_sentence_and_cards_and_draws_the_rest(open_page):
    page = open_page("plan")
    assert "llama3-8b on 16 GPUs of" in page.locator("header h1").inner_text()
    assert page.locator(".card h3").all_inner_texts() == ["Time", "MFU", "Cost", "Memory", "Risk"]
    drawn = ["Where the GPUs sit", "Who talks over which network", "Where the time goes", "Memory by stage"]
    drawn += ["Pipeline timeline", "Kernels of a layer", "Alternatives", "Pareto front", "Reasons"]
    assert headings(page) == [*drawn, "How far to trust it", "Assumptions and sources"]
    assert page.locator("section:has(h2:text-is('Memory by stage')) path.limit").count() == 2


def test_the_pointer_is_told_the_strategy(open_page):
    page = open_page("study")
    mark = page.locator("section:has(h2:text-is('Pareto front')) svg[role=img] path.fill").last
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2 + 2, box["y"] + box["height"] / 2)
    assert page.locator("#tip").is_visible()
    assert "TP 2, PP 2" in page.locator("#tip").inner_text()
    page.mouse.move(2, 2)
    assert not page.locator("#tip").is_visible()


def test_filters_reach_the_table_and_the_figures(open_page):
    page = open_page("study")
    rows, marks = (
        page.locator(".points tbody tr"),
        page.locator("section:has(h2:text-is('Scaling')) svg[role=img] path.fill"),
    )
    before = (rows.count(), marks.count())
    page.locator("fieldset:has(legend:text-is('cluster')) label", has_text="plain").locator("input").uncheck()
    assert page.locator("#count").inner_text() == "4 of 8 rows"
    assert (rows.count(), marks.count()) < before
    page.get_by_label("text to look for").fill("DP 16")
    assert rows.count() == 1
    page.get_by_label("text to look for").fill("there is no such thing at all")
    assert rows.count() == 0


def test_a_heading_sorts_up_and_then_down(open_page):
    page = open_page("study")
    names = [text.strip() for text in page.locator(".points thead th").all_inner_texts()]
    column = page.locator(f".points tbody td:nth-child({names.index('days') + 1})")

    def numbers():
        return [float(text.replace(",", "")) for text in column.all_inner_texts() if text]

    page.get_by_role("button", name="days").click()
    assert numbers() == sorted(numbers())
    page.get_by_role("button", name="days").click()
    assert numbers() == sorted(numbers(), reverse=True)
    assert column.last.inner_text() == ""  # without a figure, whichever way


def test_axes_of_the_heat_map_can_be_changed(open_page):
    page = open_page("study")
    section = page.locator("section:has(h2:text-is('Two axes'))")
    section.get_by_label("cells").select_option("days")
    assert {"40", "60"} <= set(section.locator("svg text").all_text_contents())
    section.get_by_label("rows").select_option("gpus")
    section.get_by_label("columns").select_option("gpus")
    assert "choose two different axes" in section.inner_text()


@pytest.mark.parametrize("name", ["study", "plan"])
@pytest.mark.parametrize("screen", SCREENS)
def test_nothing_sticks_out_on_any_screen(open_page, name, screen):
    page = open_page(name, screen)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("svg text").count() > 20
    shades = page.evaluate(
        "[document.body, document.querySelector('section')].map(e => getComputedStyle(e).backgroundColor)"
    )
    assert all((int(shade[4:].split(",")[0]) < 60) == (screen == "dark") for shade in shades)


def test_a_finger_is_told_the_strategy_too(open_page):
    page = open_page("study", "phone")
    mark = page.locator("section:has(h2:text-is('Scaling')) svg[role=img] path.fill").first
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.touchscreen.tap(box["x"] + 4, box["y"] + 4)
    assert "TP 2" in page.locator("#tip").inner_text()


def test_print_leaves_controls_out_and_figures_in(open_page):
    page = open_page("study", "dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.locator(".filters").is_visible()
    assert page.locator("section:has(h2:text-is('Scaling')) svg[role=img]").first.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.set_viewport_size({"width": 720, "height": 1000})  # A4 within its margins
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
