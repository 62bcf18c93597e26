"""The picture of the page of ``plan serve`` in the documents: python scripts/page_picture.py (needs the browser extra).

Starts a service of its own, asks it an example, and takes what a screen of a laptop shows, in few enough colours for
an image of some 100 kB.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURE: Final = Path(__file__).parents[1] / "docs" / "images" / "page.png"
QUESTION: Final = "#model=llama3-70b&gpus=128&cluster=dgx-h100"
SIZE: Final = {"width": 1280, "height": 1000}
MOST: Final = 200_000
"""Bytes of the picture."""


def main() -> None:
    """Take the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dark", action="store_true", help="as dark screens show it")
    parser.add_argument("--output", type=Path, default=PICTURE)
    given = parser.parse_args()
    command = [sys.executable, "-m", "planner", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:
        try:
            assert service.stderr is not None
            found = re.search(r"http://\S+", service.stderr.readline())
            assert found, "the service does not listen"
            shown = _picture(found[0] + "/" + QUESTION, dark=given.dark)
        finally:
            service.terminate()
    given.output.write_bytes(shown)
    assert len(shown) < MOST, f"{len(shown):,} bytes are more than a picture may take"
    print(f"{given.output}: {len(shown):,} bytes")  # noqa: T201 - what the script says


def _picture(address: str, *, dark: bool) -> bytes:
    browser = os.environ.get("PLAN_TEST_BROWSER") or shutil.which("chromium")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = opened.new_page(viewport=SIZE, color_scheme="dark" if dark else "light")
        page.goto(address)
        page.locator("body:not(.busy) #launch-files .file").first.wait_for(timeout=120_000)
        taken = page.screenshot()
        opened.close()
    packed = io.BytesIO()
    Image.open(io.BytesIO(taken)).convert("RGB").quantize(192, dither=Image.Dither.NONE).save(
        packed, "PNG", optimize=True
    )
    return packed.getvalue()


if __name__ == "__main__":
    main()
