"""Shared by the tests of sweeps: short runs, and how to compare their directories."""

import contextlib
import hashlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # workers find odd_learners where this process does

SHORT = {"stream.examples_per_class": 20}
START_ATTEMPTS = 5  # Ray gives a node half a minute to start, which a busy machine may not have


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set a separate cache, and a directory for the marks of odd learners."""
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DEEPCCG_ODD_LEARNERS", str(tmp_path))
    return tmp_path


def fingerprint(directory: Path) -> dict[str, str]:
    """Return a hash of each file that is part of the run's result."""
    excluded = {"previous.safetensors", "log.txt", ".lock"}
    files = {file.name: file.read_bytes() for file in sorted(directory.iterdir())}
    files["timing.json"] = b"%d steps" % json.loads(files["timing.json"])["steps"]  # not their time
    return {
        name: hashlib.blake2b(content).hexdigest()
        for name, content in files.items()
        if name not in excluded
    }


@contextlib.contextmanager
def pressed(when: Callable[[], object]) -> Iterator[None]:
    """Press Ctrl-C as soon as a condition holds."""

    def press() -> None:
        while not when():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=press, daemon=True).start()
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def ctrl_c():
    return pressed


@pytest.fixture
def fingerprints():
    return fingerprint


@pytest.fixture
def short() -> dict[str, int]:
    return dict(SHORT)


def node() -> dict[str, Any]:
    """A small node, with as few processes as possible, that need not look for ports."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    names = ("metrics_agent_port", "metrics_export_port", "runtime_env_agent_port")
    return {
        "num_cpus": 1,
        "object_store_memory": 80 * 2**20,
        "include_dashboard": False,
        "include_log_monitor": False,
        "no_monitor": True,
        **dict(zip(names, ports, strict=True)),
    }


def add_node(cluster: Any) -> None:
    for attempt in range(1, START_ATTEMPTS + 1):
        try:
            cluster.add_node(**node())
        except Exception as error:  # Ray raises just this
            if "timed out" not in str(error) or attempt == START_ATTEMPTS:
                raise
        else:
            return


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a real Ray cluster of two nodes on this machine, each with one processor."""
    ray = pytest.importorskip("ray.cluster_utils", reason="the extra deepccg[ray] is not installed")
    environment = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        nodes = ray.Cluster()
        try:
            add_node(nodes)
            add_node(nodes)
            yield nodes.address
        finally:
            nodes.shutdown()
