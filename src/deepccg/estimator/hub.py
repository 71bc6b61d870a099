"""Sharing a fitted classifier on the Hugging Face Hub: the safe file, and a model card."""

import platform
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepccg.core import InputError
from deepccg.estimator.inspection import class_counts
from deepccg.estimator.persistence import save_classifier
from deepccg.estimator.turns import turns
from deepccg.networks import PretrainedEncoder

if TYPE_CHECKING:
    from deepccg.estimator.base import StreamClassifier

FILE = "model.safetensors"
CARD = "README.md"
MOST_LISTED = 200  # classes


def push(
    model: "StreamClassifier",
    repo_id: str,
    *,
    private: bool | None,
    revision: str | None,
    token: str | bool | None,
) -> str:
    """See ``StreamClassifier.push_to_hub``."""
    hub = _client()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / FILE
        with turns(model):  # both of one state; not while they are sent: a network may be slow
            save_classifier(file, model)
            card = model_card(model, repo_id)
        files = [
            hub.CommitOperationAdd(FILE, file),
            hub.CommitOperationAdd(CARD, card.encode()),
        ]
        api = hub.HfApi(library_name="deepccg", library_version=version("deepccg"))
        try:
            api.create_repo(repo_id, private=private, exist_ok=True, token=token)
            commit = api.create_commit(
                repo_id,
                files,
                commit_message=f"A {type(model).__name__} of deepccg {version('deepccg')}",
                revision=revision,
                token=token,
            )
        except Exception as error:  # of the network, the account or the name
            raise _refused(f"{repo_id} cannot be written", error) from error
    return str(commit.commit_url)


def download(repo_id: str, *, revision: str | None, token: str | bool | None) -> Path:
    """Return the path of a repository's safe file, downloaded unless it is in the cache."""
    hub = _client()
    try:
        found = hub.hf_hub_download(
            repo_id, FILE, revision=revision, token=token, library_name="deepccg"
        )
    except Exception as error:  # the same, or the file is not there
        raise _refused(f"{repo_id} cannot be read", error) from error
    return Path(found)


def model_card(model: "StreamClassifier", repo_id: str) -> str:
    """Return what a reader has to know of a fitted classifier, as Markdown."""
    kind, shape = type(model).__name__, list(model.input_shape_)
    images = len(shape) == 3
    counts = class_counts(model.learner_, model._labels)
    seen, stored = counts["seen"], counts["stored"]
    rows = [
        f"| {_cell(label)} | {came:g} | {kept} |"
        for label, came, kept in zip(counts["label"].tolist(), seen, stored, strict=True)
    ]
    if len(rows) > MOST_LISTED:
        rows = [*rows[:MOST_LISTED], f"| and {len(rows) - MOST_LISTED} more | | |"]
    held = f"{model.learner_.memory.size or 'no'} example(s) it was trained on, as they came"
    names, argument = _encoder_lines(model)
    return "\n".join(
        [
            "---",
            "library_name: deepccg",
            f"pipeline_tag: {'image-classification' if images else 'tabular-classification'}",
            "tags: [continual-learning, online-learning, class-conditional-gaussians]",
            "---",
            "",
            f"# {_cell(repo_id)}",
            "",
            f"A `{kind}` of [deepccg](https://pypi.org/project/deepccg/), method "
            f"`{model._spec.method}`: it learned {float(seen.sum()):g} examples of "
            f"{len(model.classes_)} classes, and goes on learning with `partial_fit`.",
            "",
            f"- Inputs: {'images' if images else 'vectors'} `{['N', *shape]}`".replace("'", ""),
            f"- Encoder: {names}",
            f"- The file holds {held}.",
            "",
            "```python",
            f"from deepccg import {kind}",
            "",
            f'model = {kind}.from_hub("{repo_id}"{argument})',
            "model.predict(x)",
            "```",
            "",
            "| class | examples seen | stored |",
            "|---|---:|---:|",
            *rows,
            "",
            f"Written by deepccg {version('deepccg')}, PyTorch {version('torch')}, scikit-learn "
            f"{version('scikit-learn')}, Python {platform.python_version()}.",
            "",
        ]
    )


def _encoder_lines(model: "StreamClassifier") -> tuple[str, str]:
    """Return what the card says of the encoder, and the argument that ``from_hub`` needs."""
    encoder, network = model._spec.encoder, model.learner_.network
    if isinstance(network, PretrainedEncoder):
        about = f"`{network.name}`, pretrained and frozen, digest `{network.digest_text}`"
        if isinstance(encoder, str):
            return about, ""
        return f"{about}; its weights are not in the file", ", encoder=encoder"
    if isinstance(encoder, str):
        return f"`{encoder}`", ""
    return f"a `{type(encoder).__name__}`, whose weights are in the file", ", encoder=module"


def _cell(text: Any) -> str:
    """Text as one cell of a table."""
    return " ".join(str(text).split()).replace("\\", "\\\\").replace("|", "\\|")


def _client() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise InputError(
            "sharing a model needs huggingface_hub: pip install 'deepccg[hub]'"
        ) from None
    return huggingface_hub


def _refused(what: str, error: Exception) -> InputError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return InputError(f"{what}: {lines[0] if lines else type(error).__name__}")
