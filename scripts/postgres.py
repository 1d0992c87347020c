"""A PostgreSQL server, and a PgBouncer in front of it, for tests and benchmarks.

`python scripts/postgres.py` starts a server on loopback in a temporary directory, prints its
address, and ends it when its standard input ends, or with `--while PID` when that process ends.
`--bouncer` also prints the address of a PgBouncer in transaction mode. `--find` only says where the
programs are; without it, those that are missing are installed by apt, as root.

A server never runs as root: as root, it is started as the user `postgres` or `nobody`.
"""

from __future__ import annotations

import argparse
import os
import pwd
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time  # noqa: TID251 - there is no run here whose clock it could be
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

APT = ("apt-get", "-q", "-o", "Dpkg::Options::=--force-unsafe-io")
DEBIAN_PROGRAMS = Path("/usr/lib/postgresql")
LOOPBACK = "127.0.0.1"
USER = "abreast"
DATABASE = "runs"
START_TIMEOUT = 60.0  # seconds
POLL_INTERVAL = 0.02  # seconds
BOUNCER_SETTINGS = """\
[databases]
{database} = host={host} port={server} dbname={database}
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {users}
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
server_idle_timeout = 5
server_login_retry = 1
"""


def find_server() -> Path | None:
    """The folder with the programs of the newest PostgreSQL here."""
    versions = [path for path in DEBIAN_PROGRAMS.glob("*/bin") if (path / "initdb").exists()]
    if versions:
        return max(versions, key=lambda path: float(path.parent.name))
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


def find_bouncer() -> str | None:
    """The program of PgBouncer."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def install() -> None:
    """Install both by apt, as root; what goes wrong is said on stderr."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    wanted = ("install", "-y", "--no-install-recommends", "postgresql", "pgbouncer")
    if not _run_apt(*wanted) and _run_apt("update"):
        _run_apt(*wanted)


def _run_apt(*words: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run([*APT, *words], env=environment, stdout=sys.stderr, check=False)
    return done.returncode == 0


class Daemon:
    """A program that listens on a port of loopback, as a user that is not root."""

    def __init__(self, folder: Path) -> None:
        """Give the folder to that user."""
        self.folder = folder
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        os.chmod(folder, 0o700)  # noqa: PTH101 - beside chown
        if self._owner is not None:
            os.chown(folder, self._owner.pw_uid, self._owner.pw_gid)

    @property
    def _owner(self) -> pwd.struct_passwd | None:
        """The user to run it as; None for the one who runs this."""
        if os.geteuid() != 0:
            return None
        known = {user.pw_name: user for user in pwd.getpwall()}
        return known.get("postgres") or known["nobody"]

    @property
    def pid(self) -> int:
        """The process that was started; its other processes are its children."""
        if self._process is None:
            raise RuntimeError("it is not running")
        return self._process.pid

    def write(self, name: str, text: str) -> Path:
        """Write a file that the daemon may read."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        if self._owner is not None:
            os.chown(path, self._owner.pw_uid, self._owner.pw_gid)
        return path

    def launch(self, *words: str | Path) -> None:
        """Start it, and wait until it listens."""
        with (self.folder / "log").open("ab") as log:
            self._process = self._popen(words, log=log.fileno())
        deadline = time.monotonic() + START_TIMEOUT
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit((self.folder / "log").read_text(errors="replace"))
            time.sleep(POLL_INTERVAL)

    def run(self, *words: str | Path) -> None:
        """Run another program as the same user; SystemExit with its output if it fails."""
        process = self._popen(words, log=subprocess.PIPE)
        said, _ = process.communicate()
        if process.returncode:
            raise SystemExit(said.decode(errors="replace"))

    def stop(self) -> None:
        """End it; transactions are aborted."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill it and all its processes with SIGKILL, as a power cut would."""
        children = _children(self.pid)
        self._end(signal.SIGKILL)
        for child in children:
            _kill(child)
        while any(Path(f"/proc/{child}").exists() for child in children):
            time.sleep(POLL_INTERVAL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(START_TIMEOUT)
            self._process = None

    def _popen(self, words: tuple[str | Path, ...], log: int) -> subprocess.Popen[bytes]:
        owner = self._owner
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            start_new_session=True,
            user=owner.pw_uid if owner else None,
            group=owner.pw_gid if owner else None,
            extra_groups=[] if owner else None,
        )

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self.port)) == 0


class Server(Daemon):
    """A PostgreSQL with one database in UTF-8 and one user."""

    def __init__(self, folder: Path, programs: Path, settings: dict[str, str]) -> None:
        """Make its files."""
        super().__init__(folder)
        self.password = secrets.token_urlsafe(12)
        self._programs = programs
        self._settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",
            **settings,
        }
        secret = self.write("password", self.password)
        form = ("--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", "--no-sync")
        who = (f"--username={USER}", f"--pwfile={secret}")
        self.run(programs / "initdb", "-D", self._data, *form, *who)
        secret.unlink()

    @property
    def url(self) -> str:
        """The address of its database, with the password."""
        return f"postgresql://{USER}:{self.password}@{LOOPBACK}:{self.port}/{DATABASE}"

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def create(self) -> None:
        """Make its database; the server is not running before and after it."""
        script = self.write("create.sql", f"CREATE DATABASE {DATABASE};\n")
        with script.open("rb") as commands:
            owner = self._owner
            subprocess.run(
                [self._programs / "postgres", "--single", "-D", self._data, "postgres"],
                stdin=commands,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=self.folder,
                user=owner.pw_uid if owner else None,
                group=owner.pw_gid if owner else None,
                extra_groups=[] if owner else None,
                check=True,
            )

    def start(self) -> None:
        """Start it, or start it again; it answers when this returns, or soon after a crash."""
        words = [
            word for name in self._settings for word in ("-c", f"{name}={self._settings[name]}")
        ]
        self.launch(self._programs / "postgres", "-D", self._data, *words)


@contextmanager
def open_server(**settings: str) -> Iterator[Server]:
    """A running server, with settings such as `fsync="off"`; its files are removed at the end."""
    programs = find_server()
    if programs is None:
        raise SystemExit("no PostgreSQL here: python scripts/postgres.py installs one, as root")
    folder = Path(tempfile.mkdtemp(prefix="abreast-postgres-"))
    try:
        server = Server(folder, programs, settings)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def open_bouncer(server: Server) -> Iterator[str]:
    """The address of a PgBouncer in transaction mode, in front of a server."""
    program = find_bouncer()
    if program is None:
        raise SystemExit("no PgBouncer here: python scripts/postgres.py installs one, as root")
    folder = Path(tempfile.mkdtemp(prefix="abreast-pgbouncer-"))
    try:
        bouncer = Daemon(folder)
        users = bouncer.write("users", f'"{USER}" "{server.password}"\n')
        places = {"host": LOOPBACK, "server": server.port, "port": bouncer.port, "users": users}
        settings = bouncer.write(
            "settings.ini", BOUNCER_SETTINGS.format(database=DATABASE, **places)
        )
        bouncer.launch(program, "-q", settings)
        try:
            yield server.url.replace(f":{server.port}/", f":{bouncer.port}/")
        finally:
            bouncer.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listener:
        return int(listener.getsockname()[1])


def _children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[1]) == parent:
            found.append(int(path.parent.name))
    return found


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wait_for_end(pid: int | None) -> None:
    """Wait until a process has ended, or with None until standard input ends."""
    if pid is None:
        sys.stdin.read()
        return
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([process], [], [])


def main() -> int:
    """Find, install or serve; 1 if there is no PostgreSQL."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--find", action="store_true", help="only say where the programs are")
    parser.add_argument("--install", action="store_true", help="install them if they are missing")
    parser.add_argument("--bouncer", action="store_true", help="with a PgBouncer in front")
    parser.add_argument("--while", dest="pid", type=int, help="serve while this process lives")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    if not options.find and (find_server() is None or find_bouncer() is None):
        install()
    programs = find_server()
    if options.find or options.install or programs is None:
        print(programs or "no PostgreSQL", find_bouncer() or "no PgBouncer")
        return 0 if programs else 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with open_server(**dict(text.split("=", 1) for text in options.set)) as server:
        if not options.bouncer:
            print(server.url, flush=True)
            wait_for_end(options.pid)
            return 0
        with open_bouncer(server) as bouncer:
            print(server.url, bouncer, sep="\n", flush=True)
            wait_for_end(options.pid)
    return 0


if __name__ == "__main__":
    sys.exit(main())
