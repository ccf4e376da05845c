"""Headless Chromium, and what its DevTools protocol tells of a page: requests, complaints, sizes, pixels, keys."""

import base64
import contextlib
import http.client
import io
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
from websockets.sync.client import ClientConnection, connect

from benchmarks.pages import write_picture
from tests.fixtures import once

LIMIT_S = 60
POLL_S = 0.02
SHIFT, CONTROL = 8, 2
KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " "), "ArrowDown": (40, "")}
"""Those that `Page.press` knows: their codes on Windows, which the protocol wants, and what they write."""
FLAGS = (
    "--headless",
    "--no-sandbox",  # which cannot start as root, nor in most containers; it opens our own page only
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


def shared_chromium() -> int:
    """The DevTools port of the browser that a run of the tests starts once; tests open pages of their own in it."""

    def begin(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
        browser = _started(folder, process_group=0)
        return browser, str(_port(browser, folder))

    return int(once.server("chromium", begin))


@contextlib.contextmanager
def running_chromium(folder: Path) -> Iterator[int]:
    """The DevTools port of a new browser; its profile and log are in the folder."""
    browser = _started(folder)
    try:
        yield _port(browser, folder)
    finally:
        browser.terminate()
        browser.wait(timeout=LIMIT_S)


def _started(folder: Path, process_group: int | None = None) -> subprocess.Popen[bytes]:
    program = shutil.which("chromium")
    assert program, "no chromium on the PATH: run `make system-deps`"
    command, home = [program, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"], {"HOME": str(folder)}
    with (folder / "log").open("w") as out:
        return subprocess.Popen(command, env=os.environ | home, stdout=out, stderr=out, process_group=process_group)


def _port(browser: subprocess.Popen[bytes], folder: Path) -> int:
    """Wait until a browser answers."""
    file, deadline = folder / "profile" / "DevToolsActivePort", time.monotonic() + LIMIT_S
    while not (file.exists() and (lines := file.read_text().splitlines())):
        running = browser.poll() is None and time.monotonic() < deadline
        assert running, f"chromium did not start:\n{(folder / 'log').read_text()}"
        time.sleep(POLL_S)
    return int(lines[0])


@contextlib.contextmanager
def new_page(port: int) -> Iterator["Page"]:
    """An empty page of a running browser, which shares nothing with other pages and is closed at the end."""
    http_connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    http_connection.request("GET", "/json/version")
    address = json.load(http_connection.getresponse())["webSocketDebuggerUrl"]
    http_connection.close()
    with connect(address, proxy=None, max_size=None) as socket:
        browser = Connection(socket)
        context = browser.call("Target.createBrowserContext", disposeOnDetach=True)
        page = browser.call("Target.createTarget", url="about:blank", **context)["targetId"]
        place = f"ws://127.0.0.1:{port}/devtools/page/{page}"
        with connect(place, proxy=None, max_size=None) as page_socket:
            yield Page(page_socket)


def write_screenshot(path: Path, screenshot: np.ndarray) -> None:
    """Write a screenshot as a PNG of few colours."""
    stream = io.BytesIO()
    matplotlib.image.imsave(stream, screenshot)
    write_picture(path, stream.getvalue())


class Connection:
    """To a browser or to one of its pages; methods and events are named as in the DevTools protocol."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self._heard: list[dict[str, Any]] = []

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send one command and return its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        answer = self._hear(lambda message: message.get("id") == number)
        assert "result" in answer, f"{method}: {answer}"
        return dict(answer["result"])

    def _hear(self, wanted: Callable[[dict[str, Any]], bool], start: int = 0) -> dict[str, Any]:
        while not (found := [message for message in self._heard[start:] if wanted(message)]):
            self._heard.append(json.loads(self._socket.recv(timeout=LIMIT_S)))
        return found[0]


class Page(Connection):
    """One page, whose events are heard from the beginning."""

    def __init__(self, socket: ClientConnection) -> None:
        super().__init__(socket)
        for domain in ("Network", "Log", "Page", "Runtime"):
            self.call(f"{domain}.enable")

    def view(self, width: int, height: int, *, phone: bool, scheme: str) -> None:
        """Take the size of a window in CSS pixels, and the colour scheme that its reader prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path: Path) -> None:
        """Load a file and everything that it asks for."""
        self.visit(path.as_uri())

    def visit(self, address: str) -> None:
        """Load what is at an address, and everything that it asks for."""
        before = len(self._heard)
        self.call("Page.navigate", url=address)
        self._hear(lambda message: message.get("method") == "Page.loadEventFired", before)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, None if undefined, whatever the page's own policy says of scripts."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until a JavaScript expression is true."""
        self.wait_for(lambda: bool(self.evaluate(expression)), expression)

    def wait_for(self, come: Callable[[], bool], what: str = "") -> None:
        """Wait until something of the page is as it should be; meanwhile its events are heard."""
        deadline = time.monotonic() + LIMIT_S
        while not come():
            assert time.monotonic() < deadline, f"never: {what}\n{self.evaluate('document.body.innerText')}"
            time.sleep(POLL_S)
            self.evaluate("0")

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press a key and let it go."""
        code, text = KEYS[key]
        pressed = {"key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", text="" if modifiers else text, **pressed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def write(self, text: str) -> None:
        """Put text into what has the focus, as an input method does."""
        self.call("Input.insertText", text=text)

    def screenshot(self) -> np.ndarray:
        """The whole page, also what lies below the window, as [height, width, RGB] from 0 to 1."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip={**size, "scale": 1})
        return matplotlib.image.imread(io.BytesIO(base64.b64decode(shot["data"])))[..., :3]

    @property
    def requests(self) -> list[str]:
        """Addresses asked for so far, also in vain."""
        return [event["request"]["url"] for event in self._events("Network.requestWillBeSent")]

    @property
    def complaints(self) -> list[str]:
        """What the browser's console says against the page, and errors that its scripts did not catch."""
        thrown = [event["exceptionDetails"] for event in self._events("Runtime.exceptionThrown")]
        return [
            *(event["entry"]["text"] for event in self._events("Log.entryAdded")),
            *(each.get("exception", {}).get("description", each["text"]) for each in thrown),
        ]

    def _events(self, name: str) -> list[dict[str, Any]]:
        return [message["params"] for message in self._heard if message.get("method") == name]
