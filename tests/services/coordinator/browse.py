#!/usr/bin/env python3
"""Opens a page in a headless Chromium and says as JSON what happened there.

    browse.py URL [--width 1280] [--height 900] [--dark] [--settle 2] [--shot FILE.webp] [--run EXPRESSION]...

Talks to the browser over a pipe (--remote-debugging-pipe), so that no port is open and no package is
needed. Prints one object:
    rendered_ms   from the start of the navigation to the first complete page, as the page measured it
    requests      the URL of every request of the page
    problems      errors of scripts, of the console, of the content security policy
    results       the values of the expressions, which run one after the other when the page has been
                  shown for --settle seconds; a promise is waited for
"""
import argparse
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

DEADLINE_S = 60


class Browser:
    def __init__(self, program, profile):
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def place():
            # The browser reads 3 and writes 4. Through higher numbers, as either may be taken.
            os.dup2(to_browser, 30)
            os.dup2(from_browser, 31)
            os.dup2(30, 3)
            os.dup2(31, 4)

        # Without a sandbox of its own, which containers do not allow; the page is ours.
        self.process = subprocess.Popen(
            [program, "--headless", "--remote-debugging-pipe", f"--user-data-dir={profile}",
             "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--no-first-run", "--disable-extensions", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "about:blank"],
            preexec_fn=place, pass_fds=(3, 4), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.last = 0
        self.events = []
        self.end = time.monotonic() + DEADLINE_S

    def read(self, until):
        """The next message, or None at the time `until`."""
        while b"\0" not in self.buffer:
            left = min(until, self.end) - time.monotonic()
            if left <= 0 or not select.select([self.read_end], [], [], left)[0]:
                if time.monotonic() >= self.end:
                    sys.exit("browse.py: the browser did not answer in time")
                return None
            got = os.read(self.read_end, 1 << 16)
            if not got:
                sys.exit("browse.py: the browser has ended")
            self.buffer += got
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read(self.end)
            if answer is None:
                continue
            if answer.get("id") == self.last:
                if "error" in answer:
                    sys.exit(f"browse.py: {method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def listen(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            message = self.read(until)
            if message is not None:
                self.events.append(message)

    def close(self):
        # All of its processes, which still write to the profile otherwise.
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def problem(event):
    method, params = event.get("method"), event.get("params", {})
    if method == "Runtime.exceptionThrown":
        details = params["exceptionDetails"]
        return details.get("exception", {}).get("description", details["text"])
    if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
        return str([argument.get("value") for argument in params["args"]])
    if method == "Log.entryAdded" and params["entry"]["level"] == "error":
        return f"{params['entry']['text']} {params['entry'].get('url', '')}"
    return None


def evaluate(browser, session, expression):
    result = browser.call("Runtime.evaluate", session, expression=expression, awaitPromise=True,
                          returnByValue=True)
    if "exceptionDetails" in result:
        return {"exception": result["exceptionDetails"].get("exception", {}).get("description")}
    return result["result"].get("value")


def browse(browser, options):
    target = browser.call("Target.createTarget", url="about:blank")["targetId"]
    session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ("Page", "Runtime", "Network", "Log"):
        browser.call(f"{domain}.enable", session)
    browser.call("Emulation.setDeviceMetricsOverride", session, width=options.width,
                 height=options.height, deviceScaleFactor=1, mobile=options.width < 700)
    browser.call("Emulation.setEmulatedMedia", session, features=[
        {"name": "prefers-color-scheme", "value": "dark" if options.dark else "light"}])
    browser.call("Page.navigate", session, url=options.url)
    rendered = None
    until = time.monotonic() + DEADLINE_S / 2
    while rendered is None and time.monotonic() < until:
        browser.listen(0.05)
        rendered = evaluate(browser, session, "document.documentElement?.dataset.renderedMs ?? null")
    browser.listen(options.settle)
    results = [evaluate(browser, session, expression) for expression in options.run]
    if options.shot:
        # All of the page, not only what fits into the window.
        size = browser.call("Page.getLayoutMetrics", session)["cssContentSize"]
        kind = {"format": "webp", "quality": 70} if options.shot.endswith(".webp") else {}
        shot = browser.call("Page.captureScreenshot", session, captureBeyondViewport=True, **kind, clip={
            "x": 0, "y": 0, "width": options.width, "height": min(size["height"], options.shot_height),
            "scale": 1})
        with open(options.shot, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
    return {
        "rendered_ms": None if rendered is None else int(rendered),
        "requests": [event["params"]["request"]["url"] for event in browser.events
                     if event.get("method") == "Network.requestWillBeSent"],
        "problems": [text for text in map(problem, browser.events) if text],
        "results": results,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=900)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--settle", type=float, default=2)
    parser.add_argument("--shot")
    parser.add_argument("--shot-height", type=int, default=20000)
    parser.add_argument("--run", action="append", default=[])
    options = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    if program is None:
        sys.exit("browse.py: there is no chromium; scripts/bootstrap test installs it")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            print(json.dumps(browse(browser, options)))
        finally:
            browser.close()


if __name__ == "__main__":
    main()
