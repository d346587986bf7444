"""Drives Chromium by WebDriver (w3.org/TR/webdriver2) for tests of the book."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def is_here():
    """Returns whether Chromium and its driver are installed."""
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """A window of Chromium without a screen, for use in a `with`."""

    def __init__(self, width=1280, height=800):
        self._folder = tempfile.TemporaryDirectory(prefix="lockstep-browser-")
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env={**os.environ, "HOME": self._folder.name})
        port = next(line.rstrip(".\n").rsplit(" ", 1)[1] for line in self._driver.stdout
                    if "started successfully on port" in line)
        self._url = f"http://127.0.0.1:{port}"
        arguments = ["--headless=new", "--disable-gpu", "--hide-scrollbars",
                     f"--user-data-dir={self._folder.name}", f"--window-size={width},{height}"]
        if os.getuid() == 0:
            arguments.append("--no-sandbox")
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments, "binary": shutil.which("chromium")},
            "goog:loggingPrefs": {"browser": "ALL"}}}})
        self._url += "/session/" + made["sessionId"]
        self.size(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self._ask("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait()
            self._driver.stdout.close()
            self._folder.cleanup()

    def _ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"].split("\n")[0]) from None

    def cdp(self, command, **parameters):
        """Sends a command of the DevTools protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, path, fragment=""):
        """Opens a file as a reader does."""
        self._ask("POST", "/url", {"url": "about:blank"})
        self._ask("POST", "/url", {"url": f"file://{os.path.abspath(path)}{fragment}"})

    def size(self, width, height):
        """Sets the window's size in CSS pixels. The window may be as small as a telephone."""
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=False)

    def dark(self, is_dark):
        self.cdp("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}])

    def run(self, script, *arguments):
        """Runs a script. Returns the value that the script returns."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, script, *arguments, seconds=20):
        """Waits until a script returns a true value, and returns this value."""
        end = time.monotonic() + seconds
        while not (value := self.run(script, *arguments)):
            if time.monotonic() > end:
                raise AssertionError(f"after {seconds} s this script still returns nothing true: "
                                     f"{script}")
            time.sleep(0.05)
        return value

    def _element(self, selector):
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        return "/element/" + found[_ELEMENT]

    def click(self, selector):
        self._ask("POST", self._element(selector) + "/click", {})

    def type(self, selector, text):
        self._ask("POST", self._element(selector) + "/value", {"text": text})

    def press(self, *keys):
        """Presses keys one after another in the focused element. Tab is "\\ue004"."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", {"actions": [
            {"type": "key", "id": "keyboard", "actions": actions}]})

    def point_at(self, selector):
        """Moves the pointer over an element."""
        identity = self._element(selector).rsplit("/", 1)[1]
        self._ask("POST", "/actions", {"actions": [
            {"type": "pointer", "id": "mouse", "actions": [
                {"type": "pointerMove", "x": 0, "y": 0, "origin": {_ELEMENT: identity}}]}]})

    def console(self):
        """Returns what was printed on the console since the last call."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, path):
        """Saves a picture of the whole page as a PNG."""
        size = self.cdp("Page.getLayoutMetrics")["cssContentSize"]
        shot = self.cdp("Page.captureScreenshot", captureBeyondViewport=True, clip={
            "x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000), "scale": 1})
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
