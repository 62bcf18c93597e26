"""The page of `plan serve` in a real browser: typing, sliders, uploads, links, errors, paper, and who cannot see it."""

import json
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.planner.service.test_page_of_service import MINE, SCRIPT
from tests.planner.service.test_service import Served

SCREENS = {
    "laptop": {"viewport": {"width": 1280, "height": 800}},
    "phone": {
        "viewport": {"width": 390, "height": 844},
        "device_scale_factor": 2,
        "has_touch": True,
        "is_mobile": True,
    },
    "wide": {"viewport": {"width": 1920, "height": 1080}},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
}
SMALL = "#model=gpt3-1.3b&gpus=16&cluster=dgx-h100"
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
}


@pytest.fixture(scope="module")
def served():
    service = Served("--workers", "2", "--time-limit", "60s")
    yield service
    code, log = service.stop()
    assert code == 0
    assert "Traceback" not in log


@pytest.fixture
def open_page(browser, served):
    """Opens the page with a question in its address; complaints and requests to others fail the test."""
    complaints, contexts = [], []

    def opened(question=SMALL, screen="laptop"):
        contexts.append(browser.new_context(accept_downloads=True, **SCREENS[screen]))
        contexts[-1].grant_permissions(["clipboard-read", "clipboard-write"], origin=served.url)
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.extend([] if "status of 422" in message.text else [message.text]))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda one: complaints.extend([] if one.url.startswith((served.url, "data:", "blob:")) else [one.url]),
        )
        page.goto(served.url + "/" + question)
        page.set_default_timeout(60_000)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def whole(page):
    """The page once an answer with all its parts is there."""
    page.locator("body:not(.busy) #launch-files .file").first.wait_for()
    return page


def sentence(page):
    return page.locator("p.headline").inner_text()


def test_a_question_that_is_typed_is_answered(open_page):
    page = whole(open_page())
    page.get_by_label("Model", exact=True).fill("gpt3-125m")
    page.get_by_label("GPUs", exact=True).fill("8")
    expect(page.locator("p.headline")).to_contain_text("gpt3-125m on 8 GPUs of dgx-h100", timeout=60_000)
    assert re.search(r"[\d.]+\sm?s per iteration", sentence(page))
    assert page.locator(".card").count() == 5
    assert page.url.endswith("#model=gpt3-125m&gpus=8&cluster=dgx-h100")


def test_the_answer_is_drawn(open_page):
    page = whole(open_page())
    drawn = [box.get_attribute("id") for box in page.locator("#part-drawings .block:visible").all()]
    assert drawn == ["layout", "network", "time", "memory", "timeline", "kernels"]
    assert all(page.locator(f"#{name} svg[role=img]").count() >= 1 for name in drawn)


def test_names_are_completed_from_the_catalogue(open_page):
    page = whole(open_page())
    names = page.locator("#field-model-list option").evaluate_all("all => all.map(one => one.value)")
    assert {"llama3-70b", "gpt3-175b"} <= set(names)
    machines = page.locator("#field-cluster-list option").evaluate_all("all => all.map(one => one.value)")
    assert "dgx-h100" in machines
    assert page.get_by_label("$ per GPU-hour").get_attribute("placeholder").endswith("(catalogue)")


def test_an_error_stands_beside_its_field_and_goes_with_it(open_page):
    page = whole(open_page())
    page.get_by_label("GPUs", exact=True).fill("63")
    note = page.locator("#field-gpus-note")
    expect(note).to_contain_text("do not fill nodes of 8", timeout=60_000)
    assert page.get_by_label("GPUs", exact=True).get_attribute("aria-invalid") == "true"
    assert page.get_by_label("GPUs", exact=True).get_attribute("aria-describedby") == "field-gpus-note"
    page.get_by_label("GPUs", exact=True).fill("64")
    expect(note).to_have_text("", timeout=60_000)
    expect(page.locator("p.headline")).to_contain_text("64 GPUs", timeout=60_000)


def test_an_error_of_a_pin_opens_its_group(open_page):
    page = open_page(SMALL + "&tp=3")
    expect(page.locator("#field-tp-note")).to_contain_text("does not divide", timeout=60_000)
    assert page.locator("#field-tp").is_visible()


def test_what_does_not_fit_says_so_and_what_does(open_page):
    page = open_page("#model=llama3.1-405b&gpus=8&offload=none")
    expect(page.locator("p.headline")).to_contain_text("Nothing that was asked for fits in memory", timeout=60_000)
    assert page.locator("#summary").inner_text().count("This works") == 1
    page.get_by_role("button", name=re.compile(r"Plan for [\d,]+ GPUs")).click()
    expect(page.locator("p.headline")).to_contain_text("per iteration", timeout=60_000)
    assert int(page.get_by_label("GPUs", exact=True).input_value()) > 8


def test_a_slider_that_is_dragged_says_what_it_costs(open_page):
    page = whole(open_page())
    slider = page.locator("#slider-tp")
    before = slider.get_attribute("aria-valuetext")
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext").endswith(f"(was {before})")
    verdict = page.locator("#otherwise-answer .verdict")
    expect(verdict).to_contain_text("TP 8", timeout=60_000)
    assert re.search(r"\+[\d.]+ %", verdict.inner_text())
    assert page.locator("#otherwise-answer svg[role=img]").count() == 1
    page.get_by_role("button", name="Back to the best").click()
    expect(page.locator("#otherwise-answer")).to_contain_text("This is the best plan")


def test_another_plan_is_compared_and_pinned(open_page):
    page = whole(open_page())
    page.locator("#others input[type=radio]").nth(2).check()
    assert "against the best" in page.locator("#others h3").inner_text()
    page.get_by_role("button", name="Pin the chosen plan").click()
    assert "tp=" in page.url
    expect(page.locator("p.headline")).to_contain_text(re.compile("DP"), timeout=60_000)


def test_a_script_that_is_dropped_is_read_and_priced(open_page):
    page = whole(open_page())
    page.locator("#files").set_input_files({"name": "run.sh", "mimeType": "text/x-sh", "buffer": SCRIPT.encode()})
    reading = page.locator("#reading")
    expect(reading).to_contain_text("arguments of Megatron-LM", timeout=60_000)
    assert re.search(r"The best plan takes [\d.]+ % less time", reading.inner_text())
    assert "Assumed" in reading.inner_text()
    page.get_by_role("button", name="Plan this job freely").click()
    expect(page.locator("#others")).to_be_visible(timeout=60_000)
    assert page.locator("#reading").count() == 0


def test_what_the_form_has_no_place_for_stays_in_the_question_and_its_link(open_page):
    page = whole(open_page())
    text = SCRIPT.replace("--bf16", "--bf16 --optimizer sgd").encode()
    page.locator("#files").set_input_files({"name": "run.sh", "mimeType": "text/x-sh", "buffer": text})
    page.get_by_role("button", name="Plan this job freely").click()
    expect(page.locator("#others")).to_be_visible(timeout=60_000)
    other = whole(open_page("#" + page.url.partition("#")[2]))
    assert "optimizer: sgd" in other.locator("#also").inner_text()
    assert sentence(other) == sentence(page)
    with other.expect_download() as got:
        other.get_by_role("button", name="JSON", exact=True).click()
    assert json.loads(got.value.path().read_text())["request"]["optimizer"] == "sgd"
    other.get_by_role("button", name="leave optimizer out").click()
    assert "optimizer" not in other.url


def test_what_a_script_leaves_open_is_asked_for(open_page):
    page = whole(open_page())
    text = SCRIPT.replace("--nnodes 2", "--nnodes $NODES").encode()
    page.locator("#files").set_input_files({"name": "run.sh", "mimeType": "text/x-sh", "buffer": text})
    expect(page.locator("#files-note")).to_contain_text("NODES", timeout=60_000)
    page.get_by_label("Its variables").fill("NODES=4")
    expect(page.locator("p.headline")).to_contain_text("Your model on 32 GPUs", timeout=60_000)


def test_a_configuration_of_a_model_becomes_the_model(open_page):
    sizes = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
    shape = {"model_type": "llama", "intermediate_size": 8192, "vocab_size": 128256, "max_position_embeddings": 8192}
    page = whole(open_page())
    text = json.dumps({**shape, **sizes}).encode()
    page.locator("#files").set_input_files({"name": "config.json", "mimeType": "application/json", "buffer": text})
    expect(page.locator("p.headline")).to_contain_text("llama on 16 GPUs", timeout=60_000)
    assert "num_layers" in page.url


def test_machines_of_one_s_own_are_pasted_and_part_of_the_link(open_page):
    page = whole(open_page())
    page.get_by_text("My own machines").click()
    page.get_by_label("Cluster file").fill(MINE)
    expect(page.locator("p.headline")).to_contain_text("on 32 GPUs of mine", timeout=60_000)
    assert "4 nodes of 8 NVIDIA H100" in page.locator("#machines-note").inner_text()
    assert page.get_by_label("$ per GPU-hour").get_attribute("placeholder") == "2 (your file)"
    other = whole(open_page("#" + whole(page).url.partition("#")[2]))
    assert sentence(other) == sentence(page)
    assert '"gpus_per_node": 8' in other.get_by_label("Cluster file").input_value()
    page.get_by_label("Machines", exact=True).fill("dgx-h100")
    expect(page.locator("p.headline")).to_contain_text("of dgx-h100", timeout=60_000)
    assert page.get_by_label("Cluster file").input_value() == ""


def test_what_is_wrong_in_a_cluster_file_stands_below_it_until_it_is_mended(open_page):
    page = whole(open_page())
    page.get_by_text("My own machines").click()
    area, note = page.get_by_label("Cluster file"), page.locator("#machines-note")
    area.fill(MINE.replace("400 Gb/s", "fast"))
    expect(note).to_contain_text("bandwidth: expected a bandwidth", timeout=60_000)
    assert area.get_attribute("aria-invalid") == "true"
    assert "for other machines" in page.locator("#refusal").inner_text()
    area.fill(MINE)
    expect(page.locator("p.headline")).to_contain_text("of mine", timeout=60_000)
    assert area.get_attribute("aria-invalid") is None
    assert page.locator("#refusal").inner_text() == ""


def test_a_cluster_file_that_is_dropped_as_a_job_becomes_the_machines(open_page):
    page = whole(open_page())
    page.locator("#files").set_input_files({"name": "c.toml", "mimeType": "text/plain", "buffer": MINE.encode()})
    expect(page.locator("p.headline")).to_contain_text("gpt3-1.3b on 32 GPUs of mine", timeout=60_000)
    assert page.locator("#uploaded li").count() == 0


def test_a_name_that_objects_have_already_is_a_name_like_others(open_page):
    page = open_page(SMALL + "&__proto__=%7B%22tp%22%3A%228%22%7D")
    expect(page.locator("#refusal")).to_contain_text("there is no field '__proto__'", timeout=60_000)
    assert page.locator("#field-tp").input_value() == ""
    page.get_by_role("button", name="leave __proto__ out").click()
    whole(page)
    page.locator("#files").set_input_files({"name": "__proto__", "mimeType": "text/plain", "buffer": SCRIPT.encode()})
    expect(page.locator("#reading")).to_contain_text("__proto__: arguments of Megatron-LM", timeout=60_000)
    page.get_by_role("button", name="leave __proto__ out").click()
    expect(page.locator("#others")).to_be_visible(timeout=60_000)


def test_a_file_that_is_no_job_says_so_beside_the_files(open_page):
    page = whole(open_page())
    page.locator("#files").set_input_files({"name": "x.txt", "mimeType": "text/plain", "buffer": b"hello"})
    expect(page.locator("#files-note")).to_contain_text("it looks like plain text", timeout=60_000)
    page.get_by_role("button", name="leave x.txt out").click()
    expect(page.locator("#files-note")).to_have_text("", timeout=60_000)


def test_a_link_brings_the_same_question_and_answer(open_page):
    page = whole(open_page(SMALL + "&tp=2&precision=fp8"))
    page.get_by_role("button", name="Link", exact=False).click()
    link = page.evaluate("navigator.clipboard.readText()")
    other = whole(open_page("#" + link.partition("#")[2]))
    assert sentence(other) == sentence(page)
    assert other.locator("#field-tp").input_value() == "2"
    assert other.locator("#field-precision").input_value() == "fp8"


def test_examples_lead_to_answers(open_page):
    page = whole(open_page())
    page.get_by_role("link", name="QLoRA on 8 A100").click()
    expect(page.locator("p.headline")).to_contain_text("qwen3-8b on 8 GPUs", timeout=60_000)
    assert page.locator("#field-adapters").input_value() == "16"
    assert page.locator("#field-adapters").is_visible()


def test_the_answer_leaves_as_json_and_as_a_picture(open_page):
    page = whole(open_page())
    with page.expect_download() as got:
        page.get_by_role("button", name="JSON", exact=True).click()
    assert json.loads(got.value.path().read_text())["schema"] == "plan/1"
    with page.expect_download() as got:
        page.get_by_role("button", name="PNG", exact=True).click()
    picture = got.value.path().read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 50_000  # which a blank one of this size has not


def test_launch_files_are_there_for_every_framework(open_page):
    page = whole(open_page())
    assert "--tensor-model-parallel-size" in page.locator("#launch-files").inner_text()
    page.locator("#launch-to").select_option("slurm")
    expect(page.locator("#launch-files")).to_contain_text("#SBATCH", timeout=60_000)
    with page.expect_download() as got:
        page.locator("#launch-files").get_by_role("button", name="Save").first.click()
    assert "#SBATCH" in got.value.path().read_text()


def test_a_question_that_is_overtaken_is_not_shown(open_page):
    page = whole(open_page())
    gpus = page.get_by_label("GPUs", exact=True)
    for count in ("8", "24", "32", "48", "64"):
        gpus.fill(count)
        page.wait_for_timeout(120)
    expect(page.locator("p.headline")).to_contain_text("64 GPUs", timeout=60_000)
    whole(page)
    page.wait_for_timeout(300)
    assert "64 GPUs" in sentence(page)


@pytest.mark.parametrize("screen", SCREENS)
def test_nothing_sticks_out_and_nobody_is_left_out(open_page, screen):
    page = whole(open_page(screen=screen))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for group in page.locator("details").all():
        group.evaluate("one => { one.open = true; }")
    found = Axe().run(page, options=RULES)
    assert found.violations_count == 0, found.generate_report()


def test_no_table_is_wider_than_a_phone(open_page):
    page = whole(open_page(SMALL + "&tp=2", "phone"))
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.locator("main table.stacks").count() >= 3
    wide = page.locator("main .scroll:has(table.stacks)").evaluate_all(
        "all => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.ariaLabel)"
    )
    assert wide == []
    assert (
        page.locator("#others [role=cell]").nth(1).evaluate("one => getComputedStyle(one, '::before').content")
        == "none"
    )
    assert page.locator("#others [role=row]").count() > 2


def test_the_description_of_the_endpoints_leaves_nobody_out_either(browser, served):
    page = browser.new_page()
    page.goto(served.url + "/docs")
    found = Axe().run(page, options=RULES)
    assert found.violations_count == 0, found.generate_report()
    page.close()


def test_paper_takes_less_than_a_megabyte(open_page):
    page = whole(open_page("#model=llama3-8b&gpus=64"))
    printed = page.pdf(format="A4")
    assert 20_000 < len(printed) < 1_000_000
    page.emulate_media(media="print")
    assert not page.locator("#question").is_visible()
    assert page.locator("#layout svg[role=img]").first.is_visible()


def test_what_is_drawn_again_keeps_the_keyboard_where_it_is(open_page):
    page = whole(open_page())
    for place in ("#others input[type=radio]:checked", "#time select"):
        page.locator(place).focus()
        page.keyboard.press("ArrowDown")
        page.wait_for_timeout(100)
        assert page.evaluate(f"document.activeElement.matches('{place}')"), place


def test_the_keyboard_reaches_everything(open_page):
    page = whole(open_page())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the answer"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "answer"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    assert {"slider-tp", "launch-to"} & reached
