"""Learn from text that keeps coming: which package is a docstring from?

The docstrings of installed packages are read from their source, without importing it, and become
vectors by hashing, so that no vocabulary has to be known in advance. The packages come two at a
time, and old ones never return.

Run it: ``python examples/text_stream.py``
"""

import ast
import hashlib
import importlib.util
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from sklearn.feature_extraction.text import HashingVectorizer

from deepccg import DeepCCGClassifier

PACKAGES = ("numpy", "matplotlib", "sklearn", "torch", "pydantic", "PIL")
GIVEAWAYS = re.compile(r"(?i)\b(numpy|np|matplotlib|mpl|plt|sklearn|scikit|torch|pydantic|pil)\b")
FEATURES = 1024
SHORTEST = 8  # words of a docstring worth learning
STEP = 10  # docstrings that arrive together


def main(per_package: int = 200) -> float:
    """Learn the stream, print what is known after each pair, return the last accuracy."""
    texts = {name: docstrings(name, per_package) for name in PACKAGES}
    held_out = {name: found[: len(found) // 5] for name, found in texts.items()}
    model = DeepCCGClassifier(memory=40 * len(PACKAGES), random_state=0)
    random = np.random.default_rng(0)

    for begin in range(0, len(PACKAGES), 2):
        pair, known = PACKAGES[begin : begin + 2], PACKAGES[: begin + 2]
        arriving = [(text, name) for name in pair for text in texts[name][len(held_out[name]) :]]
        order = random.permutation(len(arriving))
        for rows in np.split(order, range(STEP, len(order), STEP)):
            model.partial_fit(
                vectors([arriving[r][0] for r in rows]), [arriving[r][1] for r in rows]
            )
        x = vectors([text for name in known for text in held_out[name]])
        y = np.repeat(known, [len(held_out[name]) for name in known])
        accuracy = model.score(x, y)
        print(
            f"{' and '.join(pair)}: {len(order)} learned; of {len(y)} held out {accuracy:.1%} right"
        )

    sentence = "Apply a two-dimensional convolution over a batch of images."
    probability = model.predict_proba(vectors([sentence]))[0]
    print(f'"{sentence}" {model.classes_[probability.argmax()]}, {probability.max():.0%}')
    return float(accuracy)


def vectors(texts: Sequence[str]) -> np.ndarray:
    """Texts as vectors ``[N, F]`` of mean square one, without words that give the answer away."""
    hashing = HashingVectorizer(n_features=FEATURES, alternate_sign=False)  # of unit length
    plain = [GIVEAWAYS.sub(" ", text) for text in texts]
    return hashing.transform(plain).toarray().astype(np.float32) * FEATURES**0.5


def docstrings(package: str, most: int) -> list[str]:
    """Docstrings of an installed package, read from its source; none of it is run."""
    spec = importlib.util.find_spec(package)  # finds a package without importing it
    if spec is None or not spec.submodule_search_locations:
        return []
    root = Path(spec.submodule_search_locations[0])
    # In an order that has nothing to do with what the files are about.
    files = sorted(root.rglob("*.py"), key=lambda file: digest(file.relative_to(root).as_posix()))
    found: dict[str, None] = {}
    for file in files:
        if "test" not in file.as_posix().removeprefix(root.as_posix()):
            found |= dict.fromkeys(docstrings_in(file))
        if len(found) >= most:
            break
    return list(found)[:most]


def docstrings_in(file: Path) -> Iterator[str]:
    """The docstrings of a module, its classes and functions, that say something."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, OSError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if len(text.split()) >= SHORTEST:
                yield text


def digest(name: str) -> bytes:
    """A fixed number for a name."""
    return hashlib.blake2b(name.encode(), digest_size=8).digest()


if __name__ == "__main__":
    torch.set_num_threads(1)  # the same numbers on every machine, as far as that goes
    main()
