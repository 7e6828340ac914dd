"""One measurement: load on a gateway for some seconds, and the CPU time its processes took."""

import re
import subprocess
from pathlib import Path

from peers import LOAD_CORE, need

# What a browser sends.
BROWSER = {
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
                  "Chrome/140.0.0.0 Safari/537.36",
    "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,"
              "*/*;q=0.8",
    "Accept-Language": "en-GB,en;q=0.9,de;q=0.8",
    "Accept-Encoding": "gzip, deflate, br, zstd",
    "Referer": "https://shop.example.com/catalogue?page=2&sort=price",
    "Cookie": "session=5f1c9e3a7b2d4c6e8f0a1b2c3d4e5f60; theme=dark; lang=en-GB",
}
BROWSER_PATH = "/search?q=winter+jacket&size=m&colour=dark%20blue&page=3"

# name: (load program, path, Host, what it is)
SCENARIOS = {
    "plain": ("wrk", "/", "localhost", "HTTP/1.1, tiny response"),
    "large": ("wrk", "/64k", "localhost", "HTTP/1.1, 64 KiB response"),
    "tls": ("wrk", "/", "localhost", "HTTPS, HTTP/1.1, tiny response"),
    "h2": ("h2load", "/", "localhost", "HTTPS, HTTP/2, one stream on each connection"),
    "h2x10": ("h2load", "/", "localhost", "HTTPS, HTTP/2, ten streams on each connection"),
    "queue": ("wrk", "/", "queue.test", "HTTP/1.1, admitted visitor behind an access queue"),
    "browser": ("wrk", BROWSER_PATH, "localhost", "HTTP/1.1, a browser's request"),
}


class Failed(Exception):
    """A measurement that must not be counted, with the reason."""


def cpu(pids):
    """(ns on the CPU, ns ready but waiting for it, user ticks, system ticks) of processes."""
    total, waited, user, system = 0, 0, 0, 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            ran, ready, _ = (task / "schedstat").read_text().split()
            total, waited = total + int(ran), waited + int(ready)
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user, system = user + int(fields[11]), system + int(fields[12])
    return total, waited, user, system


def memory(pids):
    """(RSS, PSS) in KiB."""
    rss = pss = 0
    for pid in pids:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        rss += int(re.search(r"^Rss:\s+(\d+)", text, re.M)[1])
        pss += int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])
    return rss, pss


def command(scenario, peer, seconds, connections, cookie):
    program, path, host, _ = SCENARIOS[scenario]
    headers = dict(BROWSER) if scenario == "browser" else {}
    if cookie:
        headers["Cookie"] = cookie
    load = ["taskset", "-c", LOAD_CORE]
    if program == "h2load":
        streams = "10" if scenario == "h2x10" else "1"
        clients = max(1, connections // 8) if scenario == "h2x10" else connections
        return [*load, need("h2load", "nghttp2-client"), "-t1", f"-c{clients}", f"-m{streams}",
                "-D", str(seconds), f"--connect-to=127.0.0.1:{peer.ports['https']}",
                f"https://localhost:{peer.ports['https']}{path}"]
    scheme = "https" if scenario == "tls" else "http"
    flags = [f"-H{name}: {value}" for name, value in headers.items()]
    if host != "localhost":
        flags.append(f"-HHost: {host}")
    return [*load, need("wrk", "wrk"), "-t1", f"-c{connections}", f"-d{seconds}s", "--latency",
            *flags, f"{scheme}://localhost:{peer.ports[scheme]}{path}"]


def run(scenario, peer, seconds, connections, cookie=None):
    """Loads a peer and returns its figures for one round."""
    pids = peer.pids()
    before = cpu(pids)
    try:
        done = subprocess.run(command(scenario, peer, seconds, connections, cookie),
                              capture_output=True, text=True, timeout=seconds + 30)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"the load generator did not end within {error.timeout:.0f} s") from error
    after = cpu(pids)
    text = done.stdout + done.stderr
    requests, elapsed, p99_us = parse_h2load(text) if "h2load" in done.args[3] else parse_wrk(text)
    total, waited, user, system = (a - b for a, b in zip(after, before))
    ticks = max(1, user + system)
    return {"cpu_us": total / requests / 1000, "user_share": user / ticks,
            "requests_per_s": requests / elapsed, "requests": requests, "p99_us": p99_us,
            "core_share": total / elapsed / 1e9, "waited_share": waited / (total + waited)}


def parse_wrk(text):
    counted = re.search(r"(\d+) requests in ([\d.]+)(ms|s|m)", text)
    if not counted or int(counted[1]) == 0:
        raise Failed(f"no request was answered: {text.strip()[-300:]}")
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    broken = re.search(r"Socket errors: .*", text)
    if bad or broken:
        raise Failed((bad or broken)[0])
    elapsed = float(counted[2]) * {"ms": 0.001, "s": 1, "m": 60}[counted[3]]
    p99 = re.search(r"99%\s+([\d.]+)(us|ms|s)", text)
    p99_us = float(p99[1]) * {"us": 1, "ms": 1000, "s": 1e6}[p99[2]] if p99 else None
    return int(counted[1]), elapsed, p99_us


def parse_h2load(text):
    counted = re.search(r"requests: .* (\d+) succeeded, (\d+) failed, (\d+) errored", text)
    elapsed = re.search(r"finished in ([\d.]+)(ms|s)", text)
    ok = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", text)
    if not (counted and elapsed and ok) or int(counted[1]) == 0:
        raise Failed(f"no request was answered: {text.strip()[-300:]}")
    if "Application protocol: h2" not in text:
        raise Failed("HTTP/2 was not agreed on")
    if any(int(n) for n in ok.groups()[1:]):
        raise Failed(ok[0])
    return int(counted[1]), float(elapsed[1]) * {"ms": 0.001, "s": 1}[elapsed[2]], None
