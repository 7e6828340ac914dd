"""Access queues on a Valkey: the engine alone, and through HTTP."""

import json
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import measure
from peers import GATEWAY_CORE, HERE, LOAD_CORE, Missing, Peer, free_port, need

ROOT = HERE.parent


def server(target):
    """The program: Valkey if there is one, else Redis."""
    named = os.environ.get("CORVUS_VALKEY_SERVER")
    places = [named, target / "tools/valkey/valkey-server", shutil.which("valkey-server"),
              shutil.which("redis-server"), "/usr/bin/redis-server"]
    for place in places:
        if place and Path(place).exists():
            return str(place)
    raise Missing("neither valkey-server nor redis-server is installed")


class Store(Peer):
    """A store without persistence. It has `core`."""

    def __init__(self, lab, target, name, core):
        port = free_port()
        program = server(target)
        super().__init__(name, [program, "--bind", "127.0.0.1", "--port", str(port), "--save", "",
                                "--dir", str(lab.work)], {"redis": port}, lab.work, set())
        subprocess.run(["taskset", "-apc", core, str(self.process.pid)], check=True,
                       capture_output=True)
        self.url = f"redis://127.0.0.1:{port}"

    def info(self, section, field):
        with socket.create_connection(("127.0.0.1", self.ports["redis"]), 5) as link:
            link.sendall(f"INFO {section}\r\n".encode())
            text = b""
            while not text.endswith(b"\r\n") or text.count(b"\r\n") < 3:
                text += link.recv(1 << 16)
        found = re.search(rf"^{field}[:=](\S+)", text.decode(), re.M)
        return found[1] if found else ""


def version(store):
    name = store.info("server", "valkey_version") or store.info("server", "redis_version")
    kind = "Valkey" if store.info("server", "valkey_version") else "Redis"
    return f"{kind} {name}"


def engine(lab, target, notes):
    """The engine on a store of its own, on the other core: JSON lines of its example."""
    build = ["cargo", "build", "--release", "-p", "corvus-queue", "--example", "bench_store"]
    if subprocess.run(build, cwd=ROOT).returncode != 0:
        notes.append("the bench of queues on a store does not build")
        return []
    store = Store(lab, target, "store-engine", GATEWAY_CORE)
    try:
        notes.append(f"queues on a store: {version(store)}, without persistence, on core 0")
        done = subprocess.run(
            ["taskset", "-c", LOAD_CORE, str(target / "release/examples/bench_store"), store.url],
            cwd=ROOT, capture_output=True, text=True, timeout=600)
    finally:
        store.stop()
    if done.returncode != 0:
        notes.append(f"the bench of queues on a store ended: {done.stderr.strip()[-300:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def through_http(lab, chosen, notes):
    """Joins and polls by wrk through a gateway on core 0; store and load share core 1."""
    lines = []
    binary = Path(chosen.corvus).resolve()
    for what, requests_each in (("join", 2), ("poll", 1)):
        store = Store(lab, chosen.target, f"store-{what}", LOAD_CORE)
        gateway = None
        try:
            port = free_port()
            gateway = Peer(f"corvus-{what}", [
                str(binary), "serve", "--config", lab.config("corvus-queue.yaml", {}),
                "--data", str(lab.work / f"corvus-{what}"), "--http", f"127.0.0.1:{port}",
                "--https", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--workers", "1",
                "--valkey", store.url, "--access-log", str(lab.work / f"corvus-{what}.log"),
            ], {"http": port}, lab.work, set(), {"CORVUS_LOG": "warn"})
            load = ["taskset", "-c", LOAD_CORE, need("wrk", "wrk"), "-t1",
                    f"-c{chosen.connections}", "-s", str(HERE / f"load/{what}.lua")]
            url = f"http://127.0.0.1:{port}/"
            # Until the gateway has made its keys, nobody is known.
            subprocess.run([*load, "-d8s", url], capture_output=True, timeout=40)
            before = [measure.cpu(gateway.pids())[0], measure.cpu(store.pids())[0]]
            joined = queue_length(store)
            done = subprocess.run([*load, f"-d{chosen.seconds}s", url], capture_output=True,
                                  text=True, timeout=chosen.seconds + 30)
            after = [measure.cpu(gateway.pids())[0], measure.cpu(store.pids())[0]]
            counted = re.search(r"(\d+) requests in ([\d.]+)s", done.stdout)
            if not counted or "Socket errors" in done.stdout:
                raise measure.Failed(done.stdout.strip()[-300:])
            n, elapsed = int(counted[1]) / requests_each, float(counted[2])
            if what == "join":
                # What the store has is what counts.
                n = queue_length(store) - joined
            gateway_us, store_us = ((a - b) / n / 1000 for a, b in zip(after, before))
            lines += [figure(f"http_{what}s", n / elapsed, "1/s"),
                      figure(f"http_{what}_gateway_cpu", gateway_us, "us"),
                      figure(f"http_{what}_store_cpu", store_us, "us")]
        except (Missing, measure.Failed, subprocess.TimeoutExpired, ZeroDivisionError) as error:
            notes.append(f"{what}s through HTTP are not counted: {error}")
        finally:
            for peer in (gateway, store):
                if peer:
                    peer.stop()
    return lines


def queue_length(store):
    with socket.create_connection(("127.0.0.1", store.ports["redis"]), 5) as link:
        link.sendall(b"ZCARD corvus:wr:{bench}:queue\r\n")
        return int(link.recv(64).strip().lstrip(b":"))


def figure(name, value, unit):
    return {"bench": "queue", "name": name, "value": value, "unit": unit}
