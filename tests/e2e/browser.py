"""A headless Chromium, driven over a pair of pipes by its own DevTools protocol: no driver, no port, no package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple, Self

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Nothing of its own on the network, no sandbox of its own (tests run as root in containers).
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)


def program() -> str | None:
    """The browser's program: what CHROMIUM names, or the first that is on the path."""
    named = os.environ.get("CHROMIUM")
    return named or next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Seen(NamedTuple):
    """What happened while a page was open."""

    requests: list[str]
    complaints: list[str]


class Browser:
    """One page at a time. A context manager."""

    def __init__(self, profile: Path) -> None:
        there, to_read = os.pipe(), os.pipe()
        words = [program() or PROGRAMS[0], *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        joined = f'exec "$@" 3<&{there[0]} 4>&{to_read[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", joined, "browser", *words],
            pass_fds=(there[0], to_read[1]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(there[0])
        os.close(to_read[1])
        self._out = os.fdopen(there[1], "wb", buffering=0)
        self._in = os.fdopen(to_read[0], "rb")
        self._sent = 0
        self._session = ""
        self._events: list[dict[str, Any]] = []
        self._buffer = b""

    def open(self, page: Path, *, width: int, height: int, dark: bool = False, script: bool = True) -> Seen:
        """Load a page of this machine in a fresh tab and wait until it is drawn."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")
        self._events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Page.navigate", url=page.resolve().as_uri())
        self._wait_for("Page.loadEventFired")
        return self.seen()

    def seen(self) -> Seen:
        """Requests other than for the page itself and for what it carries inside, and all that was complained of."""
        self.call("Page.getLayoutMetrics")  # an answer comes after the events before it
        asked = [e["params"]["request"]["url"] for e in self._events if e["method"] == "Network.requestWillBeSent"]
        said = [
            json.dumps(e["params"])
            for e in self._events
            if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        ]
        return Seen([url for url in asked if not url.startswith(("file:", "data:"))], said)

    def evaluate(self, script: str) -> Any:
        """The value of an expression, awaited; a thrown error fails the test."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **extra)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def call(self, method: str, **params: Any) -> Any:
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method, "params": params}
        if self._session and not method.startswith("Target."):
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._sent:
            self._keep(answer)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _wait_for(self, method: str) -> None:
        while not any(e["method"] == method for e in self._events):
            self._keep(self._next())

    def _keep(self, message: dict[str, Any]) -> None:
        if message.get("sessionId") == self._session and "method" in message:
            self._events.append(message)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._in.fileno(), 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._session = ""
        try:
            self.call("Browser.close")
        except (AssertionError, OSError):
            self._process.kill()
        self._process.wait(timeout=20)
        self._out.close()
        self._in.close()
