"""A headless Chromium that tests, benchmarks and the script for the screenshots drive."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

from selenium.webdriver import Chrome, ChromeOptions, ChromeService, Keys
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--no-proxy-server",
)
_WAIT_SEC = 30


class Browser:
    """One page of the browser, and what it did since it was last asked."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver
        self.errors: list[str] = []
        """What the console said, uncaught exceptions and violations of the content security policy."""
        self.requests: list[str] = []
        """Every address that was asked for over the network, that of the page itself included."""

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page anew, in a window of a size, and wait until it shows something."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get("about:blank")
        self.watch()
        self.errors.clear()
        self.requests.clear()
        self.driver.get(url)
        self.wait("main h1")

    def go(self, address: str) -> None:
        """Follow a link within the page."""
        self.run("location.hash = arguments[0]", address)

    def run(self, script: str, *arguments: object) -> object:
        """Run a script in the page and return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, selector: str, text: str = "") -> WebElement:
        """Return the first element of a selector once there is one, with a text in it."""

        def seen(driver: Chrome) -> WebElement | bool:
            return next(
                (each for each in driver.find_elements(By.CSS_SELECTOR, selector) if text in _text(each)), False
            )

        found = WebDriverWait(
            self.driver, _WAIT_SEC, poll_frequency=0.02, ignored_exceptions=(Exception,)
        ).until(seen, f"nothing at {selector} with {text!r}")  # fmt: skip
        assert isinstance(found, WebElement)
        return found

    def all(self, selector: str) -> list[WebElement]:
        """Return all elements of a selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all elements of a selector, also of those out of sight."""
        script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)"
        texts = self.run(script, selector)
        assert isinstance(texts, list)
        return texts

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def tab(self) -> WebElement:
        """Go on to the next element with the keyboard, and return it."""
        self.press(Keys.TAB)
        return self.driver.switch_to.active_element

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write what is seen, or the whole page, as a PNG."""
        import base64

        answer = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot",
            {"format": "png", "captureBeyondViewport": whole, **(self._whole() if whole else {})},
        )
        path.write_bytes(base64.b64decode(answer["data"]))

    def _whole(self) -> dict[str, object]:
        size = self.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def watch(self) -> None:
        """Gather what the page has said and asked for since the last call."""
        self.errors += [entry["message"] for entry in self.driver.get_log("browser")]
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])


def _text(element: WebElement) -> str:
    return element.get_property("textContent") or ""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser with a profile of its own, and end it."""
    program, driver = which("chromium"), which("chromedriver")
    if program is None or driver is None:
        raise RuntimeError("no chromium here; on Debian: apt-get install chromium chromium-driver")
    with tempfile.TemporaryDirectory(prefix="bf-browser-", ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = program
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        chrome = Chrome(options, ChromeService(driver))
        try:
            yield Browser(chrome)
        finally:
            chrome.quit()
