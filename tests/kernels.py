"""Whether this machine has the compiled kernels. Sums that are wrong are no reason to skip a test."""

from __future__ import annotations

import pytest

__all__ = ["missing", "needs_int8"]


def missing() -> str | None:
    """Why tests of the int8 kernel can't be run here, or None."""
    try:
        from prowd.nets.lowbit import _native
    except ImportError:
        return "prowd was installed without its compiled part"
    return None if _native.kernels() else "this CPU has no AVX2"


needs_int8 = pytest.mark.skipif(missing() is not None, reason=str(missing()))
