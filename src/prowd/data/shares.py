"""Who holds which rows, for any number of holders: one tensor, of which each has a stretch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Shares"]


@dataclass(frozen=True, eq=False)
class Shares:
    """The rows of every holder, in a row. A tensor of its own for each of thousands would take a kilobyte each."""

    rows: Tensor
    ends: Tensor

    @classmethod
    def dealt(cls, rows: Tensor, holders: Tensor, count: int) -> Shares:
        """Rows, and whose each is, 0 to ``count`` − 1; everybody's keep their order."""
        return cls(rows[holders.argsort(stable=True)], holders.bincount(minlength=count).cumsum(0))

    @classmethod
    def of(cls, parts: Iterable[Tensor]) -> Shares:
        """Of what everybody holds."""
        found = list(parts)
        return cls(torch.cat(found), torch.tensor([len(part) for part in found]).cumsum(0))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, holder: int) -> Tensor:
        """What one of them holds, as a view."""
        if not 0 <= holder < len(self):
            raise IndexError(f"holder {holder} of {len(self)}")
        return self.rows[int(self.ends[holder - 1]) if holder else 0 : int(self.ends[holder])]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[holder] for holder in range(len(self)))

    @property
    def sizes(self) -> Tensor:
        """How many rows everybody holds."""
        return self.ends.diff(prepend=self.ends.new_zeros(1))

    @property
    def holders(self) -> Tensor:
        """Whose each row is."""
        return torch.arange(len(self)).repeat_interleave(self.sizes)

    def kept(self, mask: Tensor) -> Shares:
        """Without the rows where a mask is False."""
        return Shares.dealt(self.rows[mask], self.holders[mask], len(self))

    def ascending(self) -> Shares:
        """The same, everybody's rows sorted."""
        order = self.rows.argsort()
        return Shares.dealt(self.rows[order], self.holders[order], len(self))
