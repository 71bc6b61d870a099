"""Sharing classifiers, through the real client, with a server on this machine."""

import base64
import hashlib
import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import yaml
from huggingface_hub import constants
from sklearn.exceptions import NotFittedError
from torch import nn

import deepccg
from deepccg import CCGClassifier, DeepCCGClassifier, InputError, PretrainedEncoder
from deepccg.core import StateMismatch
from deepccg.estimator.hub import model_card

TOKEN = "hf_for_tests"  # noqa: S105
REPO = "owner/name"


class Hub(BaseHTTPRequestHandler):
    """The five answers of a hub that the client asks for; files live in ``server.files``."""

    server: Any

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self.answer(401, b'{"error": "Invalid username or password."}')
        root = f"http://127.0.0.1:{self.server.server_port}/{REPO}"
        if path == "/api/repos/create":
            self.server.made.append(json.loads(body))
            found: Any = {"url": root}
        elif path == "/api/validate-yaml":
            head = json.loads(body)["content"].split("---")[1]
            found = {"errors": [], "warnings": [], "read": yaml.safe_load(head)}
        elif path == f"/api/models/{REPO}/preupload/main":
            files = json.loads(body)["files"]
            modes = {"uploadMode": "regular", "shouldIgnore": False}
            found = {"files": [{"path": file["path"], **modes} for file in files]}
        elif path == f"/api/models/{REPO}/commit/main":
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.server.files[line["value"]["path"]] = content
            found = {"commitUrl": f"{root}/commit/{'a' * 40}", "commitOid": "a" * 40}
        else:
            return self.answer(404, b"{}")
        return self.answer(200, json.dumps(found).encode())

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self.server.asked.append(self.path)
        if not self.path.startswith(f"/{REPO}/resolve/") or name not in self.server.files:
            return self.answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        content = self.server.files[name]
        etag = hashlib.sha256(content).hexdigest()
        return self.answer(200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": "a" * 40})


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.files, server.made, server.asked = {}, [], []
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    # What HF_ENDPOINT and HF_HUB_CACHE set when the client is imported.
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def rows() -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(60, 3))
    x[::2] += 4
    return x, np.array(["a|b", "c\nd"] * 30)


@pytest.mark.parametrize("kind", [CCGClassifier, DeepCCGClassifier])
def test_what_was_pushed_comes_back(kind: Any, hub: Any, rows: Any) -> None:
    x, y = rows
    model = kind(random_state=0).partial_fit(x, y)
    address = model.push_to_hub(REPO, private=True, token=TOKEN)
    assert address.endswith(f"{REPO}/commit/{'a' * 40}")
    assert hub.made[0]["organization"] == "owner"
    assert hub.made[0]["visibility"] == "private"
    assert set(hub.files) == {"model.safetensors", "README.md"}
    twin = kind.from_hub(REPO, token=TOKEN)
    np.testing.assert_allclose(twin.predict_proba(x), model.predict_proba(x), atol=1e-6)
    twin.partial_fit(x, y)
    other = DeepCCGClassifier if kind is CCGClassifier else CCGClassifier
    with pytest.raises(StateMismatch, match=f"it holds a {kind.__name__}"):
        other.from_hub(REPO)


def test_a_pretrained_encoder_is_given_again(hub: Any, rows: Any) -> None:
    x, y = rows
    encoder = PretrainedEncoder(nn.Linear(3, 4), name="linear")
    model = CCGClassifier(encoder=encoder).partial_fit(x, y)
    model.push_to_hub(REPO, token=TOKEN)
    with pytest.raises(InputError, match="the pretrained encoder 'linear'"):
        CCGClassifier.from_hub(REPO)
    twin = CCGClassifier.from_hub(REPO, encoder=encoder)
    np.testing.assert_allclose(twin.predict_proba(x), model.predict_proba(x), atol=1e-6)
    card = hub.files["README.md"].decode()
    assert encoder.digest_text in card
    assert f'CCGClassifier.from_hub("{REPO}", encoder=encoder)' in card


def test_the_card_says_what_was_learned(rows: Any) -> None:
    x, y = rows
    model = DeepCCGClassifier(memory=10, random_state=0).partial_fit(x, y)
    head, body = model_card(model, REPO).split("---\n")[1:]
    assert yaml.safe_load(head)["library_name"] == "deepccg"
    assert "| a\\|b | 30 | 5 |" in body
    assert "| c d | 30 | 5 |" in body  # one line, whatever the label
    assert "holds 10 example(s)" in body
    assert "vectors `[N, 3]`" in body
    assert f"deepccg {deepccg.__version__}" in body


def test_a_card_lists_two_hundred_classes() -> None:
    x = np.random.default_rng(0).normal(size=(410, 3))
    model = CCGClassifier().partial_fit(x, np.arange(410) // 2)
    card = model_card(model, REPO)
    assert "205 classes" in card
    assert "| 199 | 2 | " in card
    assert "| 200 |" not in card
    assert "| and 5 more |" in card


def test_refusals_are_one_line(hub: Any, rows: Any) -> None:
    with pytest.raises(NotFittedError):
        CCGClassifier().push_to_hub(REPO, token=TOKEN)
    model = CCGClassifier().partial_fit(*rows)
    for call, message in (
        (lambda: model.push_to_hub(REPO, token="hf_wrong"), "owner/name cannot be written"),  # noqa: S106
        (lambda: model.push_to_hub("a/b/c", token=TOKEN), "a/b/c cannot be written"),
        (lambda: CCGClassifier.from_hub(REPO), "owner/name cannot be read"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert hub.files == {}


def test_a_missing_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"pip install 'deepccg\[hub\]'"):
        CCGClassifier.from_hub(REPO)


@pytest.mark.parametrize("kind", [CCGClassifier, DeepCCGClassifier])
def test_load_reads_classifiers(kind: Any, rows: Any, tmp_path: Path) -> None:
    x, y = rows
    kind(random_state=0).partial_fit(x, y).save(tmp_path / "model")
    assert type(deepccg.load(tmp_path / "model")) is kind
    with_own = kind(encoder=nn.Linear(3, 4).double()).partial_fit(x, y)
    with_own.save(tmp_path / "own")
    loaded = deepccg.load(tmp_path / "own", encoder=nn.Linear(3, 4).double())
    np.testing.assert_allclose(loaded.predict_proba(x), with_own.predict_proba(x), atol=1e-6)
    (tmp_path / "text").write_text("nothing")
    with pytest.raises(StateMismatch):
        deepccg.load(tmp_path / "text")
