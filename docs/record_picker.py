"""Makes docs/pictures/picker.png, an animated PNG: the picker while its row gets longer, a frame per length.

python docs/record_picker.py        needs playwright, Chromium and Pillow
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent
LENGTHS = [256, 1024, 4096, 16384, 50257, 131072, 262144, 2**20, 2**22]
WIDTH, HEIGHT, TOP, MILLISECONDS = 1000, 700, 466, 1400


def frames() -> list[Image.Image]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(f"file://{HERE / 'picker.html'}")
        page.wait_for_function("document.getElementById('method').textContent !== ''")
        found = []
        for N in LENGTHS:
            page.fill("#length-number", str(N))
            page.press("#length-number", "Enter")
            page.evaluate(f"document.activeElement.blur(); window.scrollTo(0, {TOP})")
            page.wait_for_timeout(300)
            found.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(64))
        browser.close()
    return found


def main() -> None:
    first, *others = frames()
    path = HERE / "pictures" / "picker.png"
    first.save(path, save_all=True, append_images=others, duration=MILLISECONDS, loop=0, optimize=True)
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
