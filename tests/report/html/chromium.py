"""A headless Chromium driven over the DevTools protocol, on a pair of pipes: no library, no port.

https://chromedevtools.github.io/devtools-protocol/; messages are JSON, each ended by a zero byte, and with
``--remote-debugging-pipe`` the browser reads them from file descriptor 3 and writes them to 4.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = os.environ.get("MEMPLAN_CHROMIUM") or shutil.which("chromium")
_SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


class Chromium:
    """A browser with one page.

    Args:
        profile: An empty folder for its profile.
    """

    def __init__(self, profile: Path) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # The browser wants its pipes at 3 and 4, wherever they are here.
        shell = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", shell, str(CHROMIUM), *_SWITCHES, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._received = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method and wait for its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(60)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def _next(self, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"Chromium says nothing for {seconds} s"
            part = os.read(self._read, 1 << 20)
            assert part, "Chromium has ended"
            self._received += part
        message, _, self._received = self._received.partition(b"\0")
        return json.loads(message)

    # ----- a page

    def open(self, address: str, *, width: int = 1280, height: int = 900, dark: bool = False, scale: float = 1) -> None:
        """Load a page and wait until it stands."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        self.scheme(dark=dark)
        self.events.clear()
        # Away first, or a new fragment of the same page would not load it.
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")
        self.until("!document.getElementById('memplan-data') || document.documentElement.matches('.scripted')")
        self.settle()

    def scheme(self, *, dark: bool) -> None:
        """Let the system prefer dark pages, or light ones."""
        preference = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media="", features=[preference])

    def js(self, expression: str) -> Any:
        """What an expression is, in the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, condition: str, seconds: float = 20) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + seconds
        while not self.js(condition):
            assert time.monotonic() < deadline, f"never so: {condition}"
            time.sleep(0.02)

    def settle(self) -> None:
        """Let two frames pass: whatever was asked to be drawn then is."""
        self.js("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def complaints(self) -> list[str]:
        """Everything on the console, thrown, logged by the browser itself, or asked of the network."""
        self.settle()
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            match event.get("method"):
                case "Runtime.consoleAPICalled":
                    found.append(f"console: {parameters['args']}")
                case "Runtime.exceptionThrown":
                    found.append(f"thrown: {parameters['exceptionDetails']}")
                case "Log.entryAdded":
                    found.append(f"log: {parameters['entry']['text']}")
                case "Network.requestWillBeSent":
                    address = parameters["request"]["url"]
                    if not address.startswith(("file://", "blob:", "about:")):
                        found.append(f"network: {address}")
        return found

    # ----- hands

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element, scrolled into view."""
        name = json.dumps(selector)
        self.js(f"document.querySelector({name}).scrollIntoView({{block: 'center'}})")
        box = self.js(f"document.querySelector({name}).getBoundingClientRect().toJSON()")
        return box["x"], box["y"], box["width"], box["height"]

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A mouse event: ``mouseMoved``, ``mousePressed``, ``mouseReleased`` or ``mouseWheel``."""
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def hover(self, x: float, y: float) -> None:
        """Move the mouse, and let the page follow."""
        self.mouse("mouseMoved", x, y)
        self.settle()

    def click(self, x: float, y: float) -> None:
        """Press and let go."""
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.settle()

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press, move, let go."""
        self.mouse("mouseMoved", *start)
        self.mouse("mousePressed", *start, button="left", clickCount=1)
        for part in (0.5, 1):
            x, y = (one + part * (other - one) for one, other in zip(start, end, strict=True))
            self.mouse("mouseMoved", x, y, button="left", buttons=1)
        self.mouse("mouseReleased", *end, button="left", clickCount=1)
        self.settle()

    def key(self, name: str, *, text: str = "", modifiers: int = 0) -> None:
        """Press a key (``ArrowLeft``, ``Tab``, ``Enter``, ``p`` …)."""
        codes = {
            "Tab": 9,
            "Enter": 13,
            "Escape": 27,
            "Home": 36,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
        }
        more = {"windowsVirtualKeyCode": codes[name]} if name in codes else {"text": text or name}
        if name == "Enter":
            more["text"] = "\r"
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name, modifiers=modifiers, **more)
        self.settle()

    def picture(self, file: Path, *, first: str = "body", last: str = "body", around: int = 0) -> None:
        """A PNG of the page, from the top of one element to the bottom of another and some pixels around."""
        edge = "document.querySelector({}).getBoundingClientRect().{}"
        top, bottom = (
            self.js(edge.format(json.dumps(name), side)) for name, side in ((first, "top"), (last, "bottom"))
        )
        scrolled, width = self.js("scrollY"), self.js("document.documentElement.clientWidth")
        clip = {"x": 0, "y": scrolled + top - around, "width": width, "scale": 1}
        clip["height"] = bottom - top + 2 * around
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self) -> bytes:
        """The page as it would be printed."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"])

    def close(self) -> None:
        """End the browser."""
        self._session = ""
        try:
            self.send("Browser.close")
        except (AssertionError, OSError):
            self._process.kill()
        finally:
            self._process.wait(20)
            os.close(self._write)
            os.close(self._read)
