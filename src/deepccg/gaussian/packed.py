"""A symmetric matrix in half the bytes."""

import torch
from torch import Tensor


class PackedSymmetric:
    """A symmetric matrix ``[D, D]`` as its ``D (D + 1) / 2`` different entries.

    The matrix is cut into blocks A ``[k, k]``, B ``[k, h]`` and C ``[h, h]`` with k = ceil(D / 2)
    and h = floor(D / 2). B is stored as it is; the upper triangle of A and the lower triangle of C
    fill one rectangle between them. So every operation is one on whole blocks, without indices.

    >>> matrix = PackedSymmetric(torch.zeros(6))
    >>> matrix.add_gram(torch.tensor([[1.0, 2.0, 3.0]]))
    >>> matrix.dense()
    tensor([[1., 2., 3.],
            [2., 4., 6.],
            [3., 6., 9.]])
    """

    def __init__(self, values: Tensor) -> None:
        self.values = values  # [D (D + 1) / 2]
        self.dim = int(((8 * len(values) + 1) ** 0.5 - 1) / 2)
        if packed_size(self.dim) != len(values):
            raise ValueError(f"{len(values)} numbers are no packed symmetric matrix")

    @classmethod
    def zeros(cls, dim: int, dtype: torch.dtype, device: torch.device) -> "PackedSymmetric":
        """The zero matrix."""
        return cls(torch.zeros(packed_size(dim), dtype=dtype, device=device))

    @classmethod
    def of(cls, matrix: Tensor) -> "PackedSymmetric":
        """A symmetric matrix ``[D, D]``, packed."""
        packed = cls.zeros(len(matrix), matrix.dtype, matrix.device)
        upper, cross, lower = packed._blocks()
        k = len(cross)
        upper.add_(torch.triu(matrix[:k, :k]))
        lower.add_(torch.tril(matrix[k:, k:]))
        cross.copy_(matrix[:k, k:])
        return packed

    def add_gram(self, rows: Tensor, sign: float = 1.0) -> None:
        """Add ``sign * rows^T rows`` for ``rows [R, D]``."""
        upper, cross, lower = self._blocks()
        first, second = rows[:, : len(cross)], rows[:, len(cross) :]
        upper.add_(torch.triu(first.T @ first), alpha=sign)
        lower.add_(torch.tril(second.T @ second), alpha=sign)
        cross.addmm_(first.T, second, alpha=sign)

    def dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """The matrix in full, ``[D, D]``."""
        upper, cross, lower = self._blocks()
        k = len(cross)
        full = self.values.new_empty(self.dim, self.dim, dtype=dtype or self.values.dtype)
        full[:k, :k] = torch.triu(upper)
        full[:k, :k] += torch.triu(upper, diagonal=1).T
        full[k:, k:] = torch.tril(lower)
        full[k:, k:] += torch.tril(lower, diagonal=-1).T
        full[:k, k:] = cross
        full[k:, :k] = cross.T
        return full

    def _blocks(self) -> tuple[Tensor, Tensor, Tensor]:
        """Views: A as its upper triangle ``[k, k]``, B ``[k, h]``, C as its lower ``[h, h]``."""
        h = self.dim // 2
        k = self.dim - h
        cross = self.values[: k * h].view(k, h)
        if h == k:
            rectangle = self.values[k * h :].view(k, k + 1)
            return rectangle[:, 1:], cross, rectangle[:, :k]
        square = self.values[k * h :].view(k, k)
        return square, cross, square[1:, :h]


def packed_size(dim: int) -> int:
    """How many entries of a symmetric matrix ``[D, D]`` differ."""
    return dim * (dim + 1) // 2
