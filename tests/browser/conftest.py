"""Tests that need a browser: left out where there is none, unless PLAN_TEST_BROWSER names the one that there must be.

`.ci/run` names Debian's chromium, in an environment with playwright, so that nothing is skipped there in silence.
"""

import os
import shutil
from importlib.util import find_spec

import pytest

BROWSER = os.environ.get("PLAN_TEST_BROWSER") or shutil.which("chromium")
MUST = bool(os.environ.get("PLAN_TEST_BROWSER"))

collect_ignore_glob = ["test_*.py"] if not MUST and (BROWSER is None or not find_spec("playwright")) else []


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()
