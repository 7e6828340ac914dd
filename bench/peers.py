"""The gateways under test: how each is started, and which process answers for it."""

import hashlib
import hmac
import http.client
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
GATEWAY_CORE, LOAD_CORE = "0", "1"
LUA_MODULE = Path("/usr/lib/nginx/modules/ngx_http_lua_module.so")


class Missing(Exception):
    """A peer cannot take part; the message says what to do about it."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def need(program, package):
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if not path:
        raise Missing(f"{program} is not installed (Debian package {package})")
    return path


class Peer:
    """One running gateway."""

    def __init__(self, name, command, ports, work, scenarios, environment=None):
        self.name, self.ports, self.scenarios = name, ports, scenarios
        self.log = work / f"{name}.out"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["taskset", "-c", LOAD_CORE if name == "origin" else GATEWAY_CORE, *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )
        try:
            self.wait_until_open()
        except Missing:
            self.stop()
            raise

    def wait_until_open(self):
        deadline = time.monotonic() + 15
        for port in self.ports.values():
            while True:
                with socket.socket() as probe:
                    probe.settimeout(1)
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                if self.process.poll() is not None or time.monotonic() > deadline:
                    said = self.log.read_text(errors="replace").strip()[-600:]
                    raise Missing(f"{self.name} did not start: {said or 'it said nothing'}")
                time.sleep(0.05)

    def pids(self):
        """The process and its descendants (taskset becomes the program it starts)."""
        found, queue = [], [self.process.pid]
        while queue:
            pid = queue.pop()
            found.append(pid)
            try:
                for task in Path(f"/proc/{pid}/task").iterdir():
                    queue += [int(p) for p in (task / "children").read_text().split()]
            except FileNotFoundError:
                pass
        return found

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Lab:
    """A working directory, an origin, and the peers in front of it."""

    def __init__(self, work):
        self.work = work
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        self.secret = secrets.token_hex(32)
        self.make_certificate()
        (work / "64k").write_bytes(bytes(i % 251 for i in range(65536)))
        self.origin_port = free_port()
        command = [need("nginx", "nginx"), "-p", str(work), "-c", self.config("origin.conf", {})]
        # The origin serves one file; its worker must be able to read it.
        self.origin = Peer("origin", [*command, "-g", f"user {user()};"],
                           {"http": self.origin_port}, work, set())

    def make_certificate(self):
        key, cert = self.work / "key.pem", self.work / "cert.pem"
        subprocess.run(
            [need("openssl", "openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt",
             "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
            check=True, capture_output=True)
        (self.work / "both.pem").write_bytes(cert.read_bytes() + key.read_bytes())

    def config(self, name, ports):
        """Fills a template of peers/ and returns the path of the result."""
        text = (HERE / "peers" / name).read_text()
        values = {"WORK": self.work, "USER": user(), "ORIGIN": self.origin_port,
                  "SECRET": self.secret, **{k.upper(): v for k, v in ports.items()}}
        for key, value in values.items():
            text = text.replace(f"@{key}@", str(value))
        path = self.work / name
        path.write_text(text)
        return str(path)

    def start(self, name, options):
        """Starts a peer by its name; raises Missing with a sentence."""
        ports = {"http": free_port(), "https": free_port()}
        if name == "nginx":
            command = [need("nginx", "nginx"), "-p", str(self.work),
                       "-c", self.config("nginx.conf", ports)]
            return Peer(name, command, ports, self.work, {"plain", "large", "tls", "h2", "h2x10"})
        if name == "nginx-lua":
            if not LUA_MODULE.exists():
                raise Missing("nginx's Lua module is not installed "
                              "(Debian package libnginx-mod-http-lua)")
            ports.pop("https")
            command = [need("nginx", "nginx"), "-p", str(self.work),
                       "-c", self.config("nginx-lua.conf", ports)]
            return Peer(name, command, ports, self.work, {"plain", "queue"})
        if name == "haproxy":
            command = [need("haproxy", "haproxy"), "-f", self.config("haproxy.cfg", ports)]
            return Peer(name, command, ports, self.work, {"plain", "large", "tls", "h2", "h2x10"})
        if name == "prototype":
            ports.pop("https")
            binary = options.prototype_binary
            if not binary.exists():
                raise Missing("the prototype is not built (see --with-prototype)")
            command = [str(binary), f"127.0.0.1:{ports['http']}", f"127.0.0.1:{self.origin_port}"]
            return Peer(name, command, ports, self.work, {"plain", "large"})
        if name == "corvus":
            binary = Path(options.corvus).resolve()
            if not binary.exists():
                raise Missing(f"{options.corvus} does not exist: cargo build --release -p corvus")
            admin = free_port()
            command = [str(binary), "serve", "--config", self.config("corvus.yaml", ports),
                       "--data", str(self.work / "corvus-data"),
                       "--http", f"127.0.0.1:{ports['http']}",
                       "--https", f"127.0.0.1:{ports['https']}",
                       "--admin", f"127.0.0.1:{admin}", "--workers", "1",
                       "--access-log", str(self.work / "corvus-access.log")]
            everything = {"plain", "large", "tls", "h2", "h2x10", "queue", "browser"}
            return Peer(name, command, ports, self.work, everything, {"CORVUS_LOG": "warn"})
        raise Missing(f"there is no peer called {name}")

    def admission(self, peer):
        """A valid admission cookie for queue.test on this peer."""
        if peer.name == "nginx-lua":
            expiry = str(int(time.time()) + 7200)
            mac = hmac.new(self.secret.encode(), expiry.encode(), hashlib.sha256).hexdigest()
            return f"corvus_a_bench={expiry}.{mac}"
        return walk_in(peer.ports["http"], "queue.test", "corvus_a_bench")

    def stop(self, peers):
        for peer in [*peers, self.origin]:
            peer.stop()


def walk_in(port, host, wanted):
    """Visits a host as a browser does until it has been admitted."""
    jar, path = {}, "/"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        headers = {"Host": host, "Accept": "text/html", "User-Agent": "Mozilla/5.0 (bench)"}
        if jar:
            headers["Cookie"] = "; ".join(f"{n}={v}" for n, v in jar.items())
        client.request("GET", path, headers=headers)
        answer = client.getresponse()
        answer.read()
        client.close()
        for cookie in answer.headers.get_all("Set-Cookie", []):
            name, _, value = cookie.split(";")[0].partition("=")
            jar[name] = value
            if not value or "max-age=0" in cookie.lower():
                del jar[name]
        if wanted in jar and answer.status == 200:
            return f"{wanted}={jar[wanted]}"
        if answer.status in (301, 302, 303, 307, 308):
            path = answer.headers["Location"].removeprefix(f"http://{host}") or "/"
        else:
            path = "/"
            time.sleep(1)
    raise Missing(f"nobody was admitted to {host} within a minute (last status {answer.status})")


def user():
    import pwd
    return pwd.getpwuid(os.getuid()).pw_name
