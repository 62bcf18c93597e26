"""The page in a real browser: it draws, complains of nothing, answers the pointer, filters, sorts and prints."""

from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from planner import PlanRequest, compare, plan, predict
from planner.render.page import (
    answer_of,
    digest,
    embedded,
    page_of,
    script_with,
    shown_answer,
    shown_plan,
    shown_study,
    style,
)
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
        "answer": saved(folder, page_of(shown_answer(validated())), "answer.html").as_uri(),
        "compared": saved(folder, page_of(shown_answer(compared())), "compared.html").as_uri(),
        "mixed": saved(folder, page_of(shown_plan(mixed_plan())), "mixed.html").as_uri(),
        "large": saved(folder, page_of(shown_study(many(5000), "many", ("gpus", "cluster"))), "large.html").as_uri(),
        "other": saved(folder, other_page(), "other.html").as_uri(),
    }


def mixed_plan():
    cluster = str(Path(__file__).parents[2] / "examples/my-mixed-cluster.toml")
    return plan(PlanRequest(model="llama3-8b", gpus=64, cluster=cluster, global_batch_size=64, pins={"pp": "4"}))


def validated():
    """Predictions of 60 figures, and one that has none."""
    rows = [
        {
            "id": f"run {n}",
            "group": f"g{n % 3}",
            "metric": "iteration_time",
            "measured": 1.0 + n,
            "error": 0.01 * n - 0.2,
        }
        for n in range(60)
    ]
    rows = [row | {"predicted": row["measured"] * (1 + row["error"])} for row in rows]
    rows.append({"id": EVIL, "group": "g0", "metric": "fits", "measured": True, "predicted": True, "error": None})
    return answer_of({"rows": rows, "groups": {}, "summary": {}}, "mine.json")


def compared():
    one = PlanRequest(model="llama3-8b", gpus=16, global_batch_size=64)
    return compare(predict(one.model_copy(update={"pins": {"tp": "8"}})), small_plan())


def many(count):
    """So many points with a plan, their seconds spread."""
    priced = [one for one in results() if one.document.get("prediction")]
    for place in range(count):
        one, factor = priced[place % len(priced)], 0.5 + 1.5 * (place * 0.618 % 1.0)
        said = one.document["prediction"]
        said = said | {name: said[name] * factor for name in ("iteration_seconds", "training_days", "cost_dollars")}
        yield replace(one, index=place, document=one.document | {"prediction": said})


def other_page():
    """A page that is not the report's and draws one figure of a plan, as that of the service does."""
    own = """
      const data = JSON.parse(document.getElementById("data").textContent);
      document.querySelector("main").append(cards(data.plan.cards));
      mount(document.getElementById("figure"), (width) => layoutFigure(data.plan.layout, width));"""
    script, look = script_with(own), style()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest(script)}'; style-src 'sha256-{digest(look)}'; img-src data:"
    )
    return (
        f'<!doctype html><html lang="en"><head><title>other</title><link rel="icon" href="data:,">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{look}</style></head>'
        '<body><main><h1>other</h1><div id="figure"></div></main><script type="application/json" id="data">'
        f"{embedded(shown_plan(small_plan()).data())}</script><script>{script}</script></body></html>"
    )


@pytest.fixture
def open_page(browser, pages):
    """Opens a page offline; whatever the browser complains of fails the test."""
    complaints, contexts = [], []

    def opened(name, screen="desktop", **more):
        contexts.append(browser.new_context(offline=True, **SCREENS[screen], **more))
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
    assert [text.split()[0] for text in page.locator(".card h2").all_inner_texts()] == [
        "Time",
        "MFU",
        "Cost",
        "Memory",
        "Risk",
    ]
    drawn = ["Where the GPUs sit", "Who talks over which network", "Where the time goes", "Memory by stage"]
    drawn += ["Pareto front", "Pipeline timeline", "Kernels of a layer", "Alternatives", "Reasons"]
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


@pytest.mark.parametrize("name", ["study", "plan", "mixed", "answer", "compared"])
@pytest.mark.parametrize("screen", SCREENS)
def test_nothing_sticks_out_on_any_screen(open_page, name, screen):
    page = open_page(name, screen)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("svg text").count() > (8 if name == "answer" else 20)  # which has one drawing
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


@pytest.mark.parametrize("name", ["study", "plan", "mixed", "answer", "compared", "other"])
@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing_that_keeps_anybody_out(open_page, name, screen):
    page = open_page(name, screen, bypass_csp=True)  # axe runs as a script of its own
    found = Axe().run(page).response["violations"]
    assert [(one["id"], [node["target"] for node in one["nodes"]]) for one in found] == []


@pytest.mark.parametrize("name", ["study", "plan", "mixed", "answer", "large"])
def test_a_printed_page_is_below_a_megabyte_and_without_pictures(open_page, name):
    """Patterns of SVG print as pictures, and outlines of thousands of points as megabytes."""
    printed = open_page(name).pdf(format="A4", print_background=True)
    assert len(printed) < 500_000
    assert b"/Subtype /Image" not in printed


def test_arrow_keys_go_from_mark_to_mark(open_page):
    page = open_page("plan")
    page.locator("section:has(h2:text-is('Where the GPUs sit')) svg[role=img]").focus()
    page.keyboard.press("ArrowRight")
    assert "GPU 0: replica 0" in page.locator("#tip").inner_text()
    page.keyboard.press("ArrowRight")
    assert "GPU 1: " in page.locator("#tip").inner_text()
    page.keyboard.press("Escape")
    assert not page.locator("#tip").is_visible()


def test_an_alternative_is_compared_term_by_term(open_page):
    page = open_page("plan")
    section = page.locator("section:has(h2:text-is('Alternatives'))")
    section.get_by_role("radio").nth(2).check()
    assert section.locator("h3").inner_text().startswith("Plan 3")
    section.get_by_role("radio").first.check()
    assert section.locator("h3").count() == 0


def test_figures_have_names_descriptions_and_tables(open_page):
    page = open_page("plan")
    figures = page.locator("section svg[role=img]").all()
    assert all(figure.get_attribute("aria-label") for figure in figures)
    assert page.locator("section svg[role=img] > desc").count() >= 6
    terms = page.locator("section:has(h2:text-is('Where the time goes')) details")
    terms.locator("summary").click()
    assert "computing" in terms.locator("table").inner_text()


def test_node_groups_are_drawn_one_by_one(open_page):
    page = open_page("mixed")
    places, network = (
        page.locator(f"section:has(h2:text-is('{name}'))")
        for name in ("Where the GPUs sit", "Who talks over which network")
    )
    for drawn in (places, network):
        assert [text.split(":")[0] for text in drawn.locator("h3").all_inner_texts()] in (
            ["old", "new"],
            ["new", "old"],
        )
        assert drawn.locator("svg[role=img]").count() == 2
    assert "12.5 GB/s per GPU" in network.inner_text()
    timeline = page.locator("section:has(h2:text-is('Pipeline timeline'))")
    rows = timeline.locator("svg[role=img] text").all_text_contents()
    drawn = [text for text in rows if text in {"old", "new"}]
    assert drawn == [text.split(":")[0] for text in places.locator("h3").all_inner_texts()]
    assert timeline.locator("svg[role=img] path").count() >= 4
    timeline.locator("summary").click()
    assert {"old", "new"} <= {text.split(", ")[-1] for text in timeline.locator("tbody th, tbody td").all_inner_texts()}
    kernels = page.locator("section:has(h2:text-is('Kernels of a layer'))")
    before = kernels.locator("svg text").first.text_content()
    kernels.get_by_label("machines").select_option("1")
    assert kernels.locator("svg text").all_text_contents() != before
    assert len({before, *kernels.locator("svg text").filter(has_text="TFLOP/s of NVIDIA").all_text_contents()}) == 2


def test_axes_called_as_what_objects_have_already_are_drawn(browser, tmp_path):
    odd = [replace(one, axes={"constructor": one.axes["gpus"], "__proto__": one.axes["cluster"]}) for one in results()]
    page, complaints = browser.new_page(), []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(saved(tmp_path, page_of(shown_study(odd, "odd", ("constructor", "__proto__")))).as_uri())
    assert page.locator(".points tbody tr").count() == 8
    assert page.locator(".points tbody tr").last.inner_text().startswith("64")
    assert complaints == []
    page.close()


def test_any_other_answer_has_its_figures_and_tables(open_page):
    page = open_page("answer")
    assert page.locator("header h1").inner_text().startswith("Median error ")
    assert headings(page) == ["Predicted against measured", "Errors by group", "Every figure"]
    rows = page.locator("section:has(h2:text-is('Every figure')) tbody tr")
    assert rows.count() == 40
    page.get_by_role("button", name="show more rows").click()
    assert rows.count() == 61
    assert rows.first.inner_text().startswith("run 59")
    page = open_page("compared")
    bars = page.locator("section:has(h2:text-is('Time of an iteration')) svg[role=img]")
    bars.focus()
    page.keyboard.press("ArrowRight")
    assert "computing" in page.locator("#tip").inner_text()


def test_every_plan_is_a_line_and_the_best_ones_stand_out(open_page):
    page = open_page("study")
    section = page.locator("section:has(h2:text-is('All plans at a glance'))")
    lines = section.locator("svg[role=img] path.many, svg[role=img] path.best")
    assert sum(path.get_attribute("d").count("M") for path in lines.all()) == 6
    best = section.locator("svg[role=img] path.best").get_attribute("d")
    section.get_by_label("the best tenth by").select_option("cost")
    assert section.locator("svg[role=img] path.best").get_attribute("d") != best
    section.locator("svg[role=img]").focus()
    page.keyboard.press("ArrowRight")
    assert "cost, $ $32 k" in page.locator("#tip").inner_text()


def test_another_page_draws_with_the_same_functions_under_its_own_policy(open_page):
    page = open_page("other")
    assert page.locator(".card").count() == 5
    page.locator("#figure svg[role=img]").wait_for()
    page.set_viewport_size({"width": 400, "height": 700})
    page.wait_for_function("document.querySelector('#figure svg').viewBox.baseVal.width < 400")
