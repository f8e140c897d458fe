"""A SuperLink and its SuperNodes on this machine, with TLS and node authentication as in a real federation.

python -m fl_audit.experiments.examples.local_superlink OUT trains the app of `experiments/examples/hospitals` in this
federation. Canaries are known updates that hospitals send in secretly drawn rounds. The server scores each release for
canaries, and stores the scores in OUT. The command `fl-audit live OUT/canaries --coins OUT/coins` evaluates them.
"""

import argparse
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sklearn.datasets import load_digits

APP = Path(__file__).parent / "hospitals"
ROOT = Path(__file__).resolve().parents[2]
HOSPITALS = 4
PORT = 9443
_BIN = Path(sys.executable).parent
_START = 60.0
"""Seconds in which a SuperLink answers."""
_COMMAND = 600.0
_ROUND = 60.0
"""Seconds in which a command of Flower ends, and more for each round of a training; a machine may be busy."""


def _write_certificates(path: Path) -> None:
    """Write `ca.pem` of a certificate authority, and `server.pem` with `server.key`, for TLS on 127.0.0.1."""
    keys = [ec.generate_private_key(ec.SECP384R1()) for _ in range(2)]
    names = [
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
        for common_name in ("loopback CA", "localhost")
    ]
    now = datetime.now(UTC)
    for file, key, name, is_authority in (("ca", keys[0], names[0], True), ("server", keys[1], names[1], False)):
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(names[0]).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
        builder = builder.not_valid_after(now + timedelta(days=30))
        builder = builder.add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        if not is_authority:
            hosts = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        pem = builder.sign(keys[0], hashes.SHA384()).public_bytes(serialization.Encoding.PEM)
        (path / f"{file}.pem").write_bytes(pem)
    _write_private(path / "server.key", keys[1], serialization.PrivateFormat.PKCS8)


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    """Write a private key in PEM to a file that only the user may read."""
    path.touch(0o600)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def write_node_key(path: Path) -> None:
    """Create a SuperNode's key, and write it to two files.

    The public key is written to the path of the private key with `.pub` appended.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    _write_private(path, key, serialization.PrivateFormat.OpenSSH)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public)


def write_shards(path: Path, hospitals: int) -> None:
    """Divide scikit-learn's digits into test records and one shard for each hospital, and write them as NumPy archives.

    Parameters
    ----------
    path
        Directory of the archives, which are `test.npz`, `shard-0.npz`, `shard-1.npz`, and so on.
    hospitals
        Number of hospitals.
    """
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    pixels = digits.data[order] / 16
    labels = digits.target[order]
    np.savez(path / "test.npz", pixels=pixels[:400], digits=labels[:400])
    for index in range(hospitals):
        shard = slice(400 + index, None, hospitals)
        np.savez(path / f"shard-{index}.npz", pixels=pixels[shard], digits=labels[shard])


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass
class LocalFlowerFederation:
    """A Flower federation (SuperLink and SuperNodes) on this machine, with all its files in one directory."""

    place: Path  # directory of all files of the federation
    hospitals: int = HOSPITALS  # number of hospitals, each with a SuperNode
    canaries: int = 1  # number of hospitals that send canaries: the first ones
    down: int = 0  # number of hospitals whose SuperNodes are never started: the last ones
    port: int = field(default_factory=_free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def prepare(self) -> None:
        """Write the app, certificates, keys, data, coins and Flower's configuration.

        The coins are a secret seed, which determines the rounds in which a canary is sent.
        """
        self.place.mkdir(parents=True, exist_ok=True)
        shutil.copytree(APP, self.place / APP.name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        _write_certificates(self.place)
        write_shards(self.place, self.hospitals)
        for index in range(self.hospitals):
            write_node_key(self.place / f"node-{index}")
        coins = self.place / "coins"
        coins.touch(0o600)
        coins.write_text(f"{secrets.randbits(64)}\n")
        (self.place / "config.toml").write_text(
            f'[superlink]\ndefault = "loopback"\n\n[superlink.loopback]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{self.place / "ca.pem"}"\n'
        )

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the federation's processes: Flower's files are in `place`, and telemetry is off."""
        variables = {"FLWR_HOME": str(self.place), "FLWR_TELEMETRY_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
        return os.environ | variables | {"PATH": f"{_BIN}{os.pathsep}{os.environ.get('PATH', '')}"}

    def start(self, name: str, *command: str) -> None:
        """Start a process of the federation, whose output is appended to NAME.log.

        Parameters
        ----------
        name
            Name under which the process is known, such as "superlink".
        command
            Name of a program and its arguments.
        """
        with (self.place / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [str(_BIN / command[0]), *command[1:]],
                env=self.environment,
                cwd=self.place,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start_superlink(self) -> None:
        """Start the SuperLink, which keeps its state in a file, and wait until it listens.

        Raises
        ------
        RuntimeError
            If it does not listen within 60 seconds.
        """
        self.start(
            "superlink",
            "flower-superlink",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--enable-supernode-auth",
            "--ssl-ca-certfile",
            "ca.pem",
            "--ssl-certfile",
            "server.pem",
            "--ssl-keyfile",
            "server.key",
            "--database",
            "state.db",
            "--disable-runtime-dependency-installation",
        )
        end = time.monotonic() + _START
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.2)
        raise RuntimeError(f"the SuperLink does not listen: see {self.place / 'superlink.log'}")

    def start_node(self, hospital: int) -> None:
        """Start the SuperNode of the hospital with this number, from 0."""
        node_config = f'partition-id={hospital} data="{self.place / f"shard-{hospital}.npz"}"'
        if hospital < self.canaries:
            node_config += f' canary={hospital} canary-coins="{self.place / "coins"}"'
        self.start(
            f"node-{hospital}",
            "flower-supernode",
            "--superlink",
            f"127.0.0.1:{self.port}",
            "--root-certificates",
            "ca.pem",
            "--auth-supernode-private-key",
            f"node-{hospital}",
            "--node-config",
            node_config,
            "--port",
            str(_free_port()),
        )

    def flwr(self, *arguments: str, timeout: float = _COMMAND) -> str:
        """Run the command `flwr`, and return its standard output.

        Parameters
        ----------
        arguments
            Arguments of the command, such as "run".
        timeout
            Largest duration in seconds.

        Raises
        ------
        RuntimeError
            If the command fails.
        """
        command = [str(_BIN / "flwr"), *arguments]
        done = subprocess.run(
            command, env=self.environment, cwd=self.place, capture_output=True, text=True, timeout=timeout, check=False
        )
        if done.returncode:
            raise RuntimeError(f"flwr {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def train(self, app: str = APP.name, **settings: object) -> str:
        """Train the app in the federation, wait until its run has ended, and return the log.

        Parameters
        ----------
        app
            Directory of the app, relative to `place`.
        settings
            Settings of the app's run configuration, with underscores instead of hyphens.
        """
        defaults: dict[str, object] = {"data": str(self.place / "test.npz"), "out": str(self.place)}
        defaults |= {"hospitals": self.hospitals, "answering": self.hospitals - self.down, "canaries": self.canaries}
        chosen = defaults | {name.replace("_", "-"): value for name, value in settings.items()}
        words = " ".join(
            f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}" for name, value in chosen.items()
        )
        limit = _COMMAND + _ROUND * int(str(settings.get("rounds", 20)))
        return self.flwr("run", app, "loopback", "--stream", "--run-config", words, timeout=limit)

    def kill(self, name: str) -> None:
        """Kill the process that was started under a name, and its child processes."""
        process = self.running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def federation(
    path: Path, hospitals: int = HOSPITALS, canaries: int = 1, down: int = 0
) -> Iterator[LocalFlowerFederation]:
    """Yield a running federation on this machine, and end all its processes after the block.

    Parameters
    ----------
    path
        Directory of all files of the federation.
    hospitals
        Number of hospitals, each with a SuperNode.
    canaries
        Number of hospitals that send canaries: the first ones.
    down
        Number of hospitals whose SuperNodes are never started: the last ones.
    """
    federation = LocalFlowerFederation(path.absolute(), hospitals, canaries, down)
    federation.prepare()
    try:
        federation.start_superlink()
        for index in range(hospitals):
            federation.flwr("supernode", "register", f"node-{index}.pub", "loopback")
        for index in range(hospitals - down):
            federation.start_node(index)
        yield federation
    finally:
        for name in list(federation.running):
            federation.kill(name)


def main() -> None:
    """Train the hospitals' app in a federation on this machine, with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="directory of all files")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--added", type=float, default=1.0, help="noise that is added, over the noise that is claimed")
    parser.add_argument("--down", type=int, default=0, help="hospitals that never come")
    parser.add_argument("--canaries", type=int, default=1, help="hospitals that send canaries")
    parser.add_argument("--prepare", action="store_true", help="write the files and start nothing")
    chosen = parser.parse_args()
    if chosen.prepare:
        LocalFlowerFederation(chosen.out.absolute(), port=PORT).prepare()
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the federation's processes too
    with federation(chosen.out, canaries=chosen.canaries, down=chosen.down) as running:
        print(running.train(rounds=chosen.rounds, added=chosen.added))
    print(f"fl-audit live {chosen.out / 'canaries'} --coins {chosen.out / 'coins'}")


if __name__ == "__main__":
    main()
