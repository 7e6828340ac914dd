#!/usr/bin/env python3
"""Corvus beside nginx, HAProxy and nginx with Lua, in alternating rounds of one run.

The gateway under test has core 0 and one worker; the origin and the load have core 1. What is
compared is the CPU time that the gateway's processes take for one request: it does not depend on
which side of the wire is the bottleneck. bench/README.md explains the columns.
"""

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import measure
import report
import store
from peers import HERE, Lab, Missing

ROOT = HERE.parent
PEERS = ["nginx", "haproxy", "nginx-lua", "corvus"]


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = parser.add_argument
    names("--rounds", type=int, default=5)
    names("--seconds", type=int, default=4, help="of each measurement")
    names("--connections", type=int, default=64)
    names("--peers", default=",".join(PEERS), help="comma-separated")
    names("--scenarios", default=",".join(measure.SCENARIOS), help="comma-separated")
    names("--corvus", default=str(target() / "release/corvus"), help="the binary")
    names("--with-prototype", action="store_true", help="also a bare hyper proxy (builds it)")
    names("--without-engine", action="store_true", help="skip the queue engine's own bench")
    names("--without-store", action="store_true", help="skip queues on a Valkey")
    names("--out", type=Path, default=HERE / "out")
    names("--write-readme", action="store_true", help="put the figures into bench/README.md")
    chosen = parser.parse_args()
    for scenario in chosen.scenarios.split(","):
        if scenario not in measure.SCENARIOS:
            parser.error(f"no scenario {scenario}; there are {', '.join(measure.SCENARIOS)}")
    chosen.target = target()
    chosen.prototype_binary = target() / "release/bench-prototype"
    return chosen


def target():
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()


def start_peers(lab, chosen, notes):
    peers = []
    names = chosen.peers.split(",")
    if chosen.with_prototype:
        build = ["cargo", "build", "--release", "--manifest-path",
                 str(HERE / "prototype/Cargo.toml"), "--target-dir", str(target())]
        subprocess.run(build, check=True)
        names.append("prototype")
    for name in names:
        try:
            peers.append(lab.start(name, chosen))
        except Missing as reason:
            notes.append(f"{name} is left out: {reason}")
            say(notes[-1])
    return peers


def measure_all(lab, peers, chosen, notes):
    """Returns {scenario: {peer: [round or None]}}: A B C, A B C, ..."""
    results, given_up = {}, set()
    cookies = {}
    if "queue" in chosen.scenarios.split(","):
        for peer in peers:
            if "queue" in peer.scenarios:
                try:
                    cookies[peer.name] = lab.admission(peer)
                except Missing as reason:
                    given_up.add((peer.name, "queue"))
                    notes.append(f"{peer.name}, queue is left out: {reason}")
                    say(notes[-1])

    def one(scenario, peer, seconds):
        if scenario not in peer.scenarios or (peer.name, scenario) in given_up:
            return None
        cookie = cookies.get(peer.name) if scenario == "queue" else None
        try:
            return measure.run(scenario, peer, seconds, chosen.connections, cookie)
        except measure.Failed as reason:
            given_up.add((peer.name, scenario))
            notes.append(f"{peer.name}, {scenario} is not counted: {reason}")
            say(notes[-1])
            return None

    scenarios = chosen.scenarios.split(",")
    for scenario in scenarios:
        for peer in peers:
            one(scenario, peer, 1)  # warm-up: connections, caches, the branch predictor
    for number in range(chosen.rounds):
        say(f"round {number + 1} of {chosen.rounds}")
        for scenario in scenarios:
            for peer in peers:
                row = one(scenario, peer, chosen.seconds)
                if row or peer.name in results.get(scenario, {}):
                    results.setdefault(scenario, {}).setdefault(peer.name, []).append(row)
    return results


def engine_bench(chosen, notes):
    """The embedded queue engine alone: JSON lines of its example."""
    if chosen.without_engine:
        return []
    if not (ROOT / "crates/corvus-queue/examples/bench.rs").exists():
        notes.append("the queue engine has no bench example yet")
        return []
    build = ["cargo", "build", "--release", "-p", "corvus-queue", "--example", "bench"]
    if subprocess.run(build, cwd=ROOT).returncode != 0:
        notes.append("the queue engine's bench example does not build")
        return []
    binary = target() / "release/examples/bench"
    done = subprocess.run(["taskset", "-c", "0", str(binary)], cwd=ROOT, capture_output=True,
                          text=True, timeout=600)
    if done.returncode != 0:
        notes.append(f"the queue engine's bench ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def store_bench(lab, chosen, notes):
    """Queues that gateways share."""
    if chosen.without_store:
        return []
    try:
        return store.engine(lab, target(), notes) + store.through_http(lab, chosen, notes)
    except Missing as error:
        notes.append(f"queues on a store are left out: {error}")
        return []


def say(text):
    print(text, file=sys.stderr, flush=True)


def main():
    chosen = options()
    if (os.cpu_count() or 1) < 2:
        raise SystemExit("two cores are needed: one for the gateway, one for load and origin")
    # SIGTERM must not leave gateways behind any more than Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    notes = []
    lab = Lab(chosen.out.resolve() / "work")
    peers = []
    try:
        peers = start_peers(lab, chosen, notes)
        if not peers:
            raise SystemExit("no gateway to measure")
        idle = {peer.name: measure.memory(peer.pids()) for peer in peers}
        results = measure_all(lab, peers, chosen, notes)
        loaded = {peer.name: measure.memory(peer.pids()) for peer in peers}
        for peer in peers:
            peer.stop()
        stored = store_bench(lab, chosen, notes)
    finally:
        lab.stop(peers)
    run = {
        "date": datetime.date.today().isoformat(), "machine": report.machine(),
        "rounds": chosen.rounds, "seconds": chosen.seconds, "connections": chosen.connections,
        "results": results, "memory": {name: (idle[name], loaded[name]) for name in idle},
        "engine": engine_bench(chosen, notes), "store": stored, "notes": notes,
    }
    report.save(run, chosen.out)
    print(report.render(run, report.plain))
    if chosen.write_readme:
        report.write_readme(run, HERE / "README.md")


if __name__ == "__main__":
    main()
