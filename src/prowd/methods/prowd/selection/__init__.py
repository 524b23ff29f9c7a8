"""The mask of selective weight aggregation (Section 4.3, Eq. 8), solved to its global optimum.

Write x = Δ_Low·Δ_High and y = Δ_Low² entrywise, N = Σ c·x and D = Σ c·y over the kept entries, and m and k for the
fewest and the most entries that may be kept. The mask of the greatest cosine is that of the greatest N²/D among those
with N > 0. For t >= 0 let S(t) be the entries of positive score x − t·y, or if these are fewer than m or more than k
the m or k entries of greatest score: the optimum is one of these (``hull``).
"""

from prowd.methods.prowd.selection.mask import Mask, select

__all__ = ["Mask", "select"]
