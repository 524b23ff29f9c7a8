"""The mask of selective weight aggregation (Section 4.3, Eq. 8), solved to its global optimum.

Write x = Δ_Low·Δ_High and y = Δ_Low² entrywise, N = Σ c·x and D = Σ c·y over the kept entries, and k for the most
entries τ allows. The mask of the greatest cosine is that of the greatest N²/D among those with N > 0. For t >= 0 let
S(t) be the k entries of greatest score x − t·y, of positive ones only: the optimum is one of these (``hull``).
"""

from prowd.selection.mask import Mask, select

__all__ = ["Mask", "select"]
