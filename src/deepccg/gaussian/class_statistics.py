"""Counts, means and within-class scatter: all that a Gaussian classifier keeps of its examples."""

import copy
import math

import torch
from torch import Tensor

from deepccg.gaussian.packed import PackedSymmetric

MOST_ROWS = 64  # of the scatter that wait: adding them together takes hardly longer than one
ROUNDING = 1e-9  # a share of a class's weight that is none: sums of weights round


class ClassStatistics:
    """Counts, means and the scatter within classes of everything added so far.

    Updates are centred (Chan, Golub & LeVeque, 1979): no large numbers cancel, and single precision
    stores what double precision would, to rounding.

    Args:
        dim: D.
        dtype: Precision of means and scatter.
        device: Where they are.
        matrix: Whether the scatter is kept as a matrix, or its trace alone.
    """

    def __init__(
        self, dim: int, dtype: torch.dtype, device: torch.device, *, matrix: bool = True
    ) -> None:
        self.dim = dim
        self.count = torch.zeros(0, dtype=torch.float64, device=device)  # [C]
        self.mean = torch.zeros(0, dim, dtype=dtype, device=device)  # [C, D]
        self.trace = torch.zeros((), dtype=torch.float64, device=device)  # of the scatter
        self.matrix = matrix
        self.delayed = False  # whether rows of the scatter wait until it is asked for, or a few
        self._scatter: PackedSymmetric | None = None  # [D, D], once something was added
        self._rows: list[Tensor] = []  # that wait, [1, D] each
        self.shares: list[PackedSymmetric] | None = None  # of each class in the scatter, if kept

    @property
    def scatter(self) -> PackedSymmetric | None:
        """The scatter within classes, ``[D, D]``, once something was added."""
        self._add_waiting()
        return self._scatter

    @scatter.setter
    def scatter(self, scatter: PackedSymmetric | None) -> None:
        self._scatter, self._rows = scatter, []

    def copied(self) -> "ClassStatistics":
        """A copy."""
        copied = copy.copy(self)
        copied.count, copied.mean = self.count.clone(), self.mean.clone()
        copied.trace, copied._rows = self.trace.clone(), list(self._rows)
        copied.shares = None if self.shares is None else list(self.shares)  # each is replaced
        if self._scatter is not None and not self.delayed:  # or else it is replaced, not changed
            copied._scatter = PackedSymmetric(self._scatter.values.clone())
        return copied

    def grow(self, classes: int) -> None:
        """Have room for ``classes`` classes; new ones are empty."""
        if (missing := classes - len(self.count)) > 0:
            self.count = torch.cat([self.count, self.count.new_zeros(missing)])
            self.mean = torch.cat([self.mean, self.mean.new_zeros(missing, self.dim)])
            if self.shares is not None:
                self.shares += [self._zeros() for _ in range(missing)]

    def keep_shares(self) -> None:
        """From the first example on, keep the share of each class, which ``forget`` takes out."""
        self.shares = [self._zeros() for _ in range(len(self.count))]

    def forget(self, column: int) -> None:
        """Take a class out, as if it had never come."""
        if self.shares is None or self.scatter is None:
            raise ValueError("the shares of the classes were not kept")
        share = self.shares[column]
        self._replaceable_scatter().values.sub_(share.values)
        self.trace -= share.dense(torch.float64).diagonal().sum()
        self.count[column], self.mean[column] = 0.0, 0.0
        self.shares[column] = self._zeros()

    def add(self, z: Tensor, y: Tensor, unit: float = 1.0, weight: Tensor | None = None) -> Tensor:
        """Add examples ``z [B, D]`` of classes ``y [B]``.

        Args:
            z: Features.
            y: Class columns.
            unit: How often each example counts.
            weight: How often each counts by itself, ``[B]``, above 0; two is as if it came twice.

        Returns:
            Rows ``u [R, D]``, in double precision, by which the scatter has grown: u^T u.
        """
        classes, count, mean, within = _by_class(z, y, unit, weight)
        rows = torch.cat([within, self._include(classes, count, mean)])
        self._add_rows(rows, 1.0, torch.cat([y[: len(within)], classes]))
        return rows

    def remove(
        self, z: Tensor, y: Tensor, unit: float = 1.0, weight: Tensor | None = None
    ) -> Tensor:
        """Take out examples that were added; returns rows by which the scatter has shrunk."""
        classes, count, mean, within = _by_class(z, y, unit, weight)
        rows = torch.cat([within, self._exclude(classes, count, mean)])
        self._add_rows(rows, -1.0, torch.cat([y[: len(within)], classes]))
        return rows

    def merge(self, other: "ClassStatistics", columns: Tensor) -> None:
        """Add all that ``other`` has seen; its class c is class ``columns[c]`` here."""
        seen = other.count > 0
        means = other.mean[seen].double()
        own = columns[seen]
        self._add_rows(self._include(own, other.count[seen], means), 1.0, own)
        self.trace += other.trace
        if self.shares is not None and other.shares is not None:
            for column, share in zip(columns.tolist(), other.shares, strict=True):
                self.shares[column] = PackedSymmetric(self.shares[column].values + share.values)
        if other.scatter is not None:
            self._replaceable_scatter().values.add_(other.scatter.values)

    @property
    def scatter_bytes(self) -> int:
        """Bytes of the matrix, and of the shares in it."""
        matrices = [*([] if self.scatter is None else [self.scatter]), *(self.shares or [])]
        return sum(matrix.values.nbytes for matrix in matrices)

    def scale(self, factor: float) -> None:
        """Count everything so far ``factor`` times."""
        self.count *= factor
        self.trace *= factor
        if self.scatter is not None:
            self._replaceable_scatter().values *= factor

    def _include(self, classes: Tensor, count: Tensor, mean: Tensor) -> Tensor:
        """Move the means of ``classes [K]`` by those of further examples, ``mean [K, D]``.

        Returns:
            Rows ``[K, D]`` of the scatter between both: n n' / (n + n') (m' - m)(m' - m)^T.
        """
        before, own = self.count[classes], self.mean[classes].double()
        share = count / (before + count)
        offset = mean - own
        self.count[classes] = before + count
        self.mean[classes] = (own + share[:, None] * offset).to(self.mean.dtype)
        return (before * share).sqrt()[:, None] * offset

    def _exclude(self, classes: Tensor, count: Tensor, mean: Tensor) -> Tensor:
        """``_include`` undone. A class of which nothing is left has the mean 0."""
        before, own = self.count[classes], self.mean[classes].double()
        left = before - count
        some = left > ROUNDING * before
        ratio = torch.where(some, count / torch.where(some, left, 1.0), 0.0)
        offset = mean - own  # left / before of the distance between both means
        moved = (own - ratio[:, None] * offset).masked_fill(~some[:, None], 0.0)
        self.count[classes] = left.masked_fill(~some, 0.0)
        self.mean[classes] = moved.to(self.mean.dtype)
        return (before * ratio).sqrt()[:, None] * offset

    def _add_rows(self, rows: Tensor, sign: float, classes: Tensor) -> None:
        """Add ``sign * rows^T rows`` to the scatter, and to the shares of the rows' classes."""
        self.trace += sign * rows.square().sum()
        if not self.matrix:
            return
        rows = rows.to(self.mean.dtype)
        if self.shares is not None:
            for column in torch.unique(classes).tolist():
                share = PackedSymmetric(self.shares[column].values.clone())
                share.add_gram(rows[classes == column], sign)
                self.shares[column] = share
        if not (self.delayed and len(rows) == 1 and sign == 1.0):
            self._replaceable_scatter().add_gram(rows, sign)
            return
        self._rows.append(rows)
        if len(self._rows) == MOST_ROWS:
            self._add_waiting()

    def _add_waiting(self) -> None:
        if self._rows:
            rows, self._rows = torch.cat(self._rows), []
            self._replaceable_scatter().add_gram(rows)

    def _replaceable_scatter(self) -> PackedSymmetric:
        """The scatter, to be changed; where rows wait for it, a copy that takes its place."""
        if self._scatter is None:
            self._scatter = self._zeros()
        elif self.delayed:
            self._scatter = PackedSymmetric(self._scatter.values.clone())
        return self._scatter

    def _zeros(self) -> PackedSymmetric:
        return PackedSymmetric.zeros(self.dim, self.mean.dtype, self.mean.device)


def _by_class(
    z: Tensor, y: Tensor, unit: float, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A batch's classes ``[K]``, counts ``[K]``, means ``[K, D]`` and deviations ``[B, D]``."""
    z = z.double()
    if len(z) == 1 and weight is None:  # as below, in a third of the time
        return y, z.new_full((1,), unit), z, z.new_empty(0, z.shape[1])
    classes, own = torch.unique(y, return_inverse=True)
    number = torch.bincount(own, weight, minlength=len(classes)).double()
    weighted = z if weight is None else z * weight[:, None]
    mean = z.new_zeros(len(classes), z.shape[1]).index_add_(0, own, weighted) / number[:, None]
    within = (z - mean[own]) * math.sqrt(unit)
    if weight is not None:
        within *= weight.sqrt()[:, None]
    return classes, number * unit, mean, within
