"""Frozen encoders with declared preprocessing: in classifiers, in files, by name."""

import copy
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from torch import Tensor, nn

from deepccg import CCGClassifier, DeepCCGClassifier, InputError, PretrainedEncoder
from deepccg.core import Batch, StateMismatch
from deepccg.learners.state_file import load_state, save_state
from deepccg.methods import CCG, ER
from deepccg.networks import named_encoder

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


def close(found: Tensor, expected: Tensor) -> None:
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), atol=1e-5)


def tiny(seed: int = 0) -> nn.Module:
    """A network whose weights matter, and whose batch normalisation tells the modes apart."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(2))


def encoder(seed: int = 0, **changes: Any) -> PretrainedEncoder:
    fields = {"size": 12, "mean": MEAN, "std": STD, "name": "tiny", **changes}
    return PretrainedEncoder(tiny(seed), **fields)


@pytest.fixture
def images() -> tuple[Any, Any]:
    """Forty images ``[N, H, W, C]``, dark ones and light ones."""
    random = np.random.default_rng(0)
    x = random.integers(0, 128, size=(40, 8, 8, 3), dtype=np.uint8)
    x[1::2] += 100
    return x, np.array(["dark", "light"] * 20)


@pytest.mark.parametrize(
    ("side", "interpolation"), [(24, "bilinear"), (5, "bilinear"), (5, "bicubic")]
)
def test_preprocessing_is_what_pillow_and_numpy_make(side: int, interpolation: Any) -> None:
    image = np.random.default_rng(1).integers(0, 256, size=(16, 10, 3), dtype=np.uint8)
    found = encoder(size=side, interpolation=interpolation).preprocessed(
        torch.from_numpy(image).permute(2, 0, 1)[None]
    )
    kind = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
    channels = [
        Image.fromarray(image[..., c].astype(np.float32), "F").resize(
            (side, side), kind[interpolation]
        )
        for c in range(3)
    ]
    expected = (np.stack(channels) / 255 - np.array(MEAN)[:, None, None]) / np.array(STD)[
        :, None, None
    ]
    # With bicubic, Pillow takes -0.5 for the kernel's free number and so does PyTorch.
    np.testing.assert_allclose(found[0].numpy(), expected, atol=2e-5)


def test_floats_grey_images_and_channels_last() -> None:
    x = torch.randint(0, 256, (2, 3, 12, 12), dtype=torch.uint8)
    close(encoder()(x), encoder()(x.float() / 255))
    grey = x[:, :1]
    close(encoder()(grey), encoder()(grey.expand(-1, 3, -1, -1)))
    last = PretrainedEncoder(nn.Flatten(), size=12, mean=MEAN, std=STD, layout="NHWC")
    first = PretrainedEncoder(nn.Flatten(), size=12, mean=MEAN, std=STD)
    moved = first(x).unflatten(1, (3, 12, 12)).permute(0, 2, 3, 1).flatten(1)
    close(last(x), moved)
    close(encoder(length=3.0)(x).norm(dim=1), torch.full((2,), 3.0))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": 0}, "size is 0"),
        ({"std": (0.2, 0.0, 0.2)}, "std is"),
        ({"mean": [MEAN]}, "mean is"),
        ({"layout": "CHW"}, "choose NCHW or NHWC"),
        ({"interpolation": "nearest"}, "choose bilinear or bicubic"),
        ({"length": 0}, "length is 0"),
        ({"mean": (0.1, 0.2), "std": 1.0}, "cannot embed inputs of shape"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        encoder(**fields)


@pytest.mark.parametrize("kind", [CCGClassifier, DeepCCGClassifier])
def test_a_classifier_learns_embeddings_and_never_the_encoder(kind: Any, images: Any) -> None:
    x, y = images
    own = encoder()
    model = kind(encoder=own, random_state=0)
    for begin in range(0, 40, 10):
        model.partial_fit(x[begin : begin + 10], y[begin : begin + 10])
    with torch.no_grad():
        z = own(torch.from_numpy(x).permute(0, 3, 1, 2)).numpy()
    other = kind(encoder="identity", random_state=0)
    for begin in range(0, 40, 10):
        other.partial_fit(z[begin : begin + 10], y[begin : begin + 10])
    np.testing.assert_allclose(model.predict_proba(x), other.predict_proba(z), atol=1e-4)
    pairs = zip(own.module.state_dict().values(), tiny().state_dict().values(), strict=True)
    assert all(torch.equal(now, before) for now, before in pairs)
    assert not model.learner_.network.module.training


class Counting(nn.Module):
    """Counts the inputs it embeds, in all copies."""

    embedded = 0

    def forward(self, x: Tensor) -> Tensor:
        Counting.embedded += len(x)
        return x.flatten(1) + 0 * self.weight

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))


def test_stored_examples_are_embedded_once(images: Any) -> None:
    x, y = images
    model = DeepCCGClassifier(
        encoder=PretrainedEncoder(Counting()),
        memory=20,
        method_params={"replay": 8},
        random_state=0,
    )
    counts = []
    for begin in range(0, 40, 4):
        before = Counting.embedded
        model.partial_fit(x[begin : begin + 4], y[begin : begin + 4])
        counts.append(Counting.embedded - before)
    assert max(counts[2:]) <= 8  # four for the step and four to be stored; no replayed one


@pytest.mark.parametrize("kind", [CCGClassifier, DeepCCGClassifier])
def test_a_file_holds_a_digest_and_not_the_weights(kind: Any, images: Any, tmp_path: Path) -> None:
    x, y = images
    model, path = kind(encoder=encoder(), random_state=0).partial_fit(x, y), tmp_path / "model"
    model.save(path)
    with safe_open(path, "pt") as file:
        assert not [name for name in file.keys() if "network.module" in name]  # noqa: SIM118
    for twin in (
        kind.load(path, encoder=encoder()),
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),  # noqa: S301  (our own bytes)
    ):
        np.testing.assert_allclose(twin.predict_proba(x), model.predict_proba(x), atol=1e-6)
        twin.partial_fit(x, y)
    for wrong in (None, tiny()):
        with pytest.raises(InputError, match="the pretrained encoder 'tiny'"):
            kind.load(path, encoder=wrong)
    for other in (encoder(seed=1), encoder(size=13), encoder(mean=0.0), encoder(length=1.0)):
        with pytest.raises(StateMismatch, match="is not the one it was learned with"):
            kind.load(path, encoder=other)
    state, about = load_state(path)
    save_state(path, state, {**about, "pretrained": 3})
    with pytest.raises(StateMismatch, match="pretrained is missing or broken"):
        kind.load(path, encoder=encoder())


def test_two_machines_merge_without_having_met(images: Any) -> None:
    x, y = images
    here, there = (CCGClassifier(encoder=encoder()).partial_fit(x[k::2], y[k::2]) for k in (0, 1))
    whole = CCGClassifier(encoder=encoder()).partial_fit(x, y)
    np.testing.assert_allclose(
        here.merge(there).predict_proba(x), whole.predict_proba(x), atol=1e-4
    )
    stranger = CCGClassifier(encoder=encoder(seed=1)).partial_fit(x, y)
    with pytest.raises(InputError, match="the same features"):
        here.merge(stranger)


@pytest.mark.parametrize("kind", [CCG, ER])
def test_a_learner_takes_it_as_its_network(kind: Any, images: Any) -> None:
    x = torch.from_numpy(images[0]).permute(0, 3, 1, 2).contiguous()
    y = torch.arange(40) % 2
    learner = kind(encoder(), memory=10)
    learner.learn(Batch(x, y))
    twin = kind(encoder(), memory=10)
    twin.load_state_dict(learner.state_dict())
    close(twin.predict_proba(x), learner.predict_proba(x))
    with pytest.raises(StateMismatch, match="is not the one"):
        kind(encoder(seed=1), memory=10).load_state_dict(learner.state_dict())


def test_vectors_and_half_precision() -> None:
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    linear = nn.Linear(4, 6).bfloat16()
    scaled = PretrainedEncoder(linear, mean=(0.0, 1.0, 2.0, 3.0), std=2.0)
    assert scaled.dim == 0
    assert scaled.for_inputs((4,)).dim == 6
    model = CCGClassifier(encoder=scaled).fit(x, x[:, 0] > 0)
    assert model.learner_.dtype == torch.float32
    moved = (torch.from_numpy(x) - torch.arange(4.0)) / 2
    close(scaled(torch.from_numpy(x)), linear(moved.bfloat16()).float())
    with pytest.raises(InputError, match="4 channels"):
        CCGClassifier(encoder=scaled).fit(x[:, :3], x[:, 0] > 0)


def stand_in_timm(asked: list[Any]) -> Any:
    """What is used of timm: ``create_model`` and ``data.resolve_model_data_config``."""

    def create_model(name: str, pretrained: bool = False, num_classes: int | None = None) -> Any:
        asked.append((name, pretrained, num_classes))
        if name != "tiny":
            raise RuntimeError(f"Unknown model ({name})")
        return tiny()

    config = {
        "input_size": (3, 12, 12), "interpolation": "bilinear", "mean": MEAN, "std": STD,
        "crop_pct": 0.875, "crop_mode": "center",
    }  # fmt: skip
    return SimpleNamespace(
        create_model=create_model,
        data=SimpleNamespace(resolve_model_data_config=lambda model: config),  # noqa: ARG005
    )


class StandInModel(nn.Module):
    """A model of transformers: it takes ``pixel_values`` and returns an object of several parts."""

    def __init__(self, pools: bool) -> None:
        super().__init__()
        self.network, self.pools = tiny(), pools

    def forward(self, pixel_values: Tensor) -> Any:
        tokens = self.network(pixel_values).flatten(2).transpose(1, 2)
        pooled = tokens.mean(dim=1) * 2 if self.pools else None
        return SimpleNamespace(last_hidden_state=tokens, pooler_output=pooled)


def stand_in_transformers(pools: bool) -> Any:
    processor = SimpleNamespace(
        size={"shortest_edge": 14}, crop_size={"height": 12, "width": 12}, do_center_crop=True,
        image_mean=list(MEAN), image_std=list(STD), resample=2,
    )  # fmt: skip
    model = StandInModel(pools)
    return SimpleNamespace(
        AutoImageProcessor=SimpleNamespace(from_pretrained=lambda name: processor),  # noqa: ARG005
        AutoModel=SimpleNamespace(from_pretrained=lambda name: model),  # noqa: ARG005
    )


@pytest.fixture(autouse=True)
def _forget_named_encoders() -> Any:
    named_encoder.cache_clear()
    yield
    named_encoder.cache_clear()


def test_an_encoder_of_timm_by_name(
    monkeypatch: pytest.MonkeyPatch, images: Any, tmp_path: Path
) -> None:
    x, y = images
    asked: list[Any] = []
    monkeypatch.setitem(sys.modules, "timm", stand_in_timm(asked))
    model = CCGClassifier(encoder="timm:tiny").partial_fit(x, y)
    assert asked == [("tiny", True, 0)]
    by_hand = CCGClassifier(encoder=encoder()).partial_fit(x, y)
    np.testing.assert_allclose(model.predict_proba(x), by_hand.predict_proba(x), atol=1e-6)
    model.save(tmp_path / "model")
    twin = CCGClassifier.load(tmp_path / "model")
    assert twin.encoder == "timm:tiny"
    np.testing.assert_allclose(twin.predict_proba(x), model.predict_proba(x), atol=1e-6)
    with pytest.raises(InputError, match=r"timm:other cannot be loaded: Unknown model \(other\)"):
        CCGClassifier(encoder="timm:other").partial_fit(x, y)


@pytest.mark.parametrize(("pools", "factor"), [(True, 2), (False, 1)])
def test_an_encoder_of_transformers_by_name(
    monkeypatch: pytest.MonkeyPatch, pools: bool, factor: int
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", stand_in_transformers(pools))
    named = named_encoder("hf:owner/tiny")
    assert (named.size, named.interpolation, named.name) == ((12, 12), "bilinear", "hf:owner/tiny")
    x = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    expected = factor * encoder()(x).unflatten(1, (8, 4)).mean(dim=2)
    close(named(x), expected)


@pytest.mark.parametrize(
    ("name", "package"), [("timm:resnet18", "timm"), ("hf:owner/name", "transformers")]
)
def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str, images: Any
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for kind in (CCGClassifier, DeepCCGClassifier):
        with pytest.raises(InputError, match=f"pip install {package}"):
            kind(encoder=name).partial_fit(*images)
