"""A real browser for tests: Chromium through chromedriver's HTTP interface, nothing else."""

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--enable-unsafe-swiftshader",  # figures in space need WebGL, also where there is no GPU
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class Browser:
    """One headless window with a profile of its own; use it in a `with` statement."""

    def __init__(self, profile: Path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.root = f"http://127.0.0.1:{port}"
        self.driver = subprocess.Popen(
            [DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        options = {
            "binary": CHROMIUM,
            "args": [*FLAGS, f"--user-data-dir={profile}", "--window-size=1280,900"],
            "perfLoggingPrefs": {"enableNetwork": True},
        }
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        self._await_driver()
        answer = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.root += f"/session/{answer['sessionId']}"
        self._ask("POST", "/url", {"url": "about:blank"})
        self.requests()  # those of the browser's own first page

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._ask("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait(10)

    def open(self, path: Path) -> None:
        """Load a file and wait until its figures stand."""
        self._ask("POST", "/url", {"url": path.resolve().as_uri()})
        self.run("return window.offmapReady.then(() => true)")

    def run(self, script: str, *arguments):
        """The value of a script, awaited if it is a promise."""
        body = {"script": script, "args": list(arguments)}
        return self._ask("POST", "/execute/sync", body)

    def resize(self, width: int, height: int) -> None:
        """The window as a device of this size would show it."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.devtools("Emulation.setDeviceMetricsOverride", metrics)

    def devtools(self, command: str, parameters: dict | None = None):
        """The answer of a command of the DevTools protocol."""
        body = {"cmd": command, "params": parameters or {}}
        return self._ask("POST", "/goog/cdp/execute", body)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """The whole page as PNG, or what the window shows of it."""
        options = {"captureBeyondViewport": whole}
        if whole:
            width, height = self.run("return [innerWidth, document.documentElement.scrollHeight]")
            options["clip"] = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        path.write_bytes(base64.b64decode(self.devtools("Page.captureScreenshot", options)["data"]))

    def print_pdf(self, path: Path) -> None:
        """The page as it prints."""
        options = {"printBackground": True, "preferCSSPageSize": True}
        path.write_bytes(base64.b64decode(self.devtools("Page.printToPDF", options)["data"]))

    def errors(self) -> list[str]:
        """What went wrong by the console since the last call; remarks on speed are left out."""
        entries = self._ask("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def requests(self) -> list[str]:
        """Addresses the page asked for since the last call; its own data and blobs are left out."""
        entries = self._ask("POST", "/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        addresses = [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in addresses if not url.startswith(("data:", "blob:"))]

    def _await_driver(self) -> None:
        for _ in range(200):
            try:
                if self._ask("GET", "/status")["ready"]:
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        raise RuntimeError("chromedriver did not start within 10 s")

    def _ask(self, method: str, path: str, body: dict | None = None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.root + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.loads(error.read())["value"]["message"]) from None
