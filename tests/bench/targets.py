"""What is measured: the provider itself, nginx, prefixgate, and peers. Each is started on loopback,
found by its address, asked for its CPU time and memory, and stopped."""

import ctypes
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(
    os.environ.get("PREFIXGATE_TEST_CACHE") or pathlib.Path.home() / ".cache/prefixgate-tests"
)
TICKS = os.sysconf("SC_CLK_TCK")
START_SECONDS = 30
_PR_SET_PDEATHSIG = 1


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _die_with_parent():
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def wait_port(port, process, what, *logs):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    said = "".join(path.read_text(errors="replace")[-2000:] for path in logs if path.exists())
    sys.exit(f"{what} did not come up on port {port}: {said}")


class Target:
    """A process (with its children) that answers on a local port."""

    def __init__(self, name, command, port, log, headers=(), env=None, stdout=None):
        self.name, self.port, self.headers = name, port, list(headers)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout or open(log, "ab"),
            stderr=open(log, "ab"),
            env=env,
            preexec_fn=_die_with_parent,
        )
        self.log = log

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def pids(self):
        """The process and its descendants."""
        parents = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
        found, queue = [], [self.process.pid]
        while queue:
            pid = queue.pop()
            found.append(pid)
            queue += parents.get(pid, [])
        return found

    def cpu_us(self):
        """User and system time of all its processes so far, in microseconds."""
        total = 0
        for pid in self.pids():
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total * 1_000_000 // TICKS

    def rss_bytes(self):
        """Resident memory of all its processes."""
        total = 0
        for pid in self.pids():
            for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1]) * 1024
        return total

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def _nginx(name, work, port, server):
    """One worker a core, keep-alive on both sides, no log, nothing written to disk."""
    home = work / name
    home.mkdir()
    user = "user root;" if os.getuid() == 0 else ""
    conf = f"""
daemon off; {user} pid {home}/pid; error_log {home}/error.log error;
worker_processes auto; worker_rlimit_nofile 65536;
events {{ worker_connections 16384; }}
http {{
  access_log off; server_tokens off; tcp_nodelay on;
  keepalive_requests 100000000; keepalive_timeout 600s;
  client_max_body_size 64m; client_body_buffer_size 2m;
  client_body_temp_path {home}/b; proxy_temp_path {home}/p; fastcgi_temp_path {home}/f;
  uwsgi_temp_path {home}/u; scgi_temp_path {home}/s;
  {server}
}}
"""
    (home / "nginx.conf").write_text(conf)
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    command = [nginx, "-p", str(home), "-c", str(home / "nginx.conf"), "-e", str(home / "error.log")]
    target = Target(name, command, port, home / "log")
    wait_port(port, target.process, name, target.log, home / "error.log")
    return target


def provider(work, program, answered):
    """What all others stand before: static answers in each of the formats; a beta named bench-stream
    asks for the streamed one (every gateway passes betas on, not every other header)."""
    home = work / "direct"
    home.mkdir()
    command = [str(program), "provider"]
    for form in answered:
        # Told from each other by the last word of the path.
        word = form.path.rpartition("/")[2]
        for kind, text in (("whole", form.answer()), ("stream", form.stream())):
            file = home / f"{word}-{kind}"
            file.write_text(text)
            command += [f"--{word}-{kind}", str(file)]
    target = Target("direct", command, 0, home / "log", stdout=subprocess.PIPE)
    target.port = int(_ready(target)["provider"].rpartition(":")[2])
    return target


def _ready(target):
    """The addresses in the line that a program of ours prints when it listens."""
    line = target.process.stdout.readline().decode()
    if not line.startswith("listening "):
        sys.exit(f"{target.name} did not come up: {line}{target.log.read_text()}")
    return dict(word.split("=", 1) for word in line.split()[1:])


def nginx(work, to, name="nginx"):
    """A reverse proxy set up for such traffic: nothing buffered, as streams need it."""
    port = free_port()
    server = f"""
  upstream provider {{ server 127.0.0.1:{to}; keepalive 1024; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port} reuseport backlog=4096;
    location / {{
      proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 600s;
    }}
  }}"""
    return _nginx(name, work, port, server)


def prefixgate(work, to, binary, name="prefixgate"):
    """The gateway as it comes: markers added (policy fill), every turn recorded in SQLite."""
    home = work / name
    home.mkdir()
    command = [str(binary), "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    command += ["--upstream", f"http://127.0.0.1:{to}", "--data-dir", str(home / "data")]
    command += ["--cache", "fill"]
    target = Target(name, command, 0, home / "log", stdout=subprocess.PIPE)
    ready = _ready(target)
    target.port = int(ready["proxy"].rpartition(":")[2])
    target.admin = ready["admin"]
    return target


def dropped(target):
    """The gateway's own counters of what it could not record."""
    with urllib.request.urlopen(f"{target.admin}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return [l for l in lines if "drop" in l and not l.startswith("#") and not l.endswith(" 0")]


def nemo_relay(work, to):
    port = free_port()
    home = work / "nemo"
    home.mkdir()
    program = CACHE / "py-peers/bin/nemo-relay"
    command = [str(program), "--bind", f"127.0.0.1:{port}", "--anthropic-base-url"]
    target = Target(
        "NeMo Relay", command + [f"http://127.0.0.1:{to}"], port, home / "log",
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
    )
    wait_port(port, target.process, "NeMo Relay", target.log)
    return target


def portkey(work, to):
    port = free_port()
    home = work / "portkey"
    home.mkdir()
    program = CACHE / "npm-peers/node_modules/@portkey-ai/gateway/build/start-server.js"
    command = ["node", "--require", str(HERE / "loopback.cjs"), str(program)]
    target = Target(
        "Portkey", command + [f"--port={port}", "--headless"], port, home / "log",
        headers=["x-portkey-provider: anthropic", f"x-portkey-custom-host: http://127.0.0.1:{to}/v1"],
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
    )
    wait_port(port, target.process, "Portkey", target.log)
    return target
