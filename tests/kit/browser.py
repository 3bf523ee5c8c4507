"""A browser without a window, for tests of pages: Debian's chromium and its chromedriver, asked by W3C's WebDriver.

The protocol is JSON over HTTP, so these few methods need no package; packages that do more fetch browsers and report
their use.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = {"chromium": ("chromium", "google-chrome"), "chromedriver": ("chromedriver",)}
APT = "apt-get install chromium chromium-driver"
PATIENCE = 20.0  # seconds that anything may take
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key that stands for an element
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Control": "\ue009", "Space": " ", "Down": "\ue015"}
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--mute-audio",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
)


def absent() -> str:
    """Which programs are not here, and what brings them; empty: none."""
    missing = [name for name in PROGRAMS if not program(name)]
    return f"{' and '.join(missing)}: not installed; {APT}" if missing else ""


def program(name: str) -> str:
    """Where it is; empty: nowhere."""
    return next((path for other in PROGRAMS[name] if (path := shutil.which(other))), "")


@dataclass
class Browser:
    """A window of it."""

    driver: str  # the address of the session

    def ask(self, method: str, path: str, **body: Any) -> Any:
        data = json.dumps(body).encode() if method == "POST" else None
        request = urllib.request.Request(
            f"{self.driver}{path}", data, {"content-type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"].splitlines()[0]) from None

    def open(self, url: str) -> None:
        self.ask("POST", "/url", url=url)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function's body returns, or its promise."""
        return self.ask("POST", "/execute/sync", script=script, args=[*arguments])

    def until(self, script: str, *arguments: Any) -> Any:
        """The first result that is true."""
        end = time.monotonic() + PATIENCE
        while not (result := self.run(script, *arguments)):
            assert time.monotonic() < end, f"never: {script} {arguments}\n{self.run('return document.body.innerText')}"
            time.sleep(0.02)
        return result

    def click(self, selector: str) -> None:
        found = self.ask("POST", "/element", using="css selector", value=selector)
        self.ask("POST", f"/element/{found[ELEMENT]}/click")

    def write(self, selector: str, text: str) -> None:
        """In the place of what stands there, all at once: keys are pressed one by one."""
        script = """const [selector, text] = arguments, input = document.querySelector(selector);
            input.focus(); input.value = text; input.dispatchEvent(new Event("input", {bubbles: true}))"""
        self.run(script, selector, text)

    def press(self, *keys: str) -> None:
        """Keys by their names, or signs; with Control first held down."""
        names = [KEYS.get(key, key) for key in keys]
        held = names[:1] if keys[0] == "Control" else []
        down = [{"type": "keyDown", "value": name} for name in held]
        each = [{"type": kind, "value": name} for name in names[len(held) :] for kind in ("keyDown", "keyUp")]
        up = [{"type": "keyUp", "value": name} for name in held]
        self.ask("POST", "/actions", actions=[{"type": "key", "id": "keys", "actions": [*down, *each, *up]}])

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self.ask("POST", "/goog/cdp/execute", cmd=command, params=parameters)

    def resize(self, width: int, height: int) -> None:
        """As a telephone's page is wide, whatever windows allow."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def scheme(self, name: str) -> None:
        """dark or light."""
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def log(self, kind: str) -> list[dict[str, Any]]:
        """What came since it was asked for: `browser`, errors of scripts and policies; `performance`, requests."""
        entries: list[dict[str, Any]] = self.ask("POST", "/se/log", type=kind)
        return entries

    def requests(self) -> list[str]:
        """The addresses of all since this was asked for."""
        messages = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        sent = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent]

    def picture(self, path: Path) -> None:
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """One, until the block ends."""
    command = [program("chromedriver"), "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as driver:
        try:
            assert driver.stdout
            port = next(found[1] for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
            window = Browser(f"http://127.0.0.1:{port}")
            options = {"binary": program("chromium"), "args": [*ARGUMENTS]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"performance": "ALL", "browser": "ALL"}}
            session = window.ask("POST", "/session", capabilities={"alwaysMatch": wanted})
            window.driver += f"/session/{session['sessionId']}"
            try:
                yield window
            finally:
                window.ask("DELETE", "")
        finally:
            driver.terminate()


def wait_for(true: Callable[[], Any]) -> None:
    """Until something outside of it is so."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)
