"""The first screen in a real browser, where one is there: it fits the screens that readers have."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fl_audit.audits.page.report_page import render_html

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
)
MEASURE = """<script>
const place = document.querySelector(".first").getBoundingClientRect();
document.title = `bottom ${Math.round(place.bottom)} wide ${document.documentElement.scrollWidth}`;
</script></body>"""


@pytest.mark.long
@pytest.mark.skipif(BROWSER is None, reason="no browser")
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)], ids=["desktop", "phone"])
def test_the_first_screen_fits_the_screen(make_contents, tmp_path: Path, width: int, height: int) -> None:
    html = render_html(make_contents(exact=False, noise=0.5, trials=800), [])
    # A copy that may measure itself: a headless window is never as narrow as a phone, so its body is.
    copy = re.sub(r"<meta http-equiv.*?>", "", html).replace("</body>", MEASURE)
    copy = copy.replace("<body>", f'<body style="max-width: {width}px">')
    (tmp_path / "page.html").write_text(copy, encoding="utf-8")
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},{height}"]
    done = subprocess.run(
        [*command, "--dump-dom", (tmp_path / "page.html").as_uri()], capture_output=True, text=True, timeout=200
    )
    match = re.search(r"bottom (\d+) wide (\d+)", done.stdout)
    assert match is not None, done.stderr[-500:]
    assert int(match[1]) <= height
    assert int(match[2]) <= max(width, 500)
