"""ProWD (Yoon et al., 2022): the method, its dequantizer φ (Algorithm 2) and its mask (Eq. 8)."""

from prowd.methods.prowd.method import ProWD, ProWDDeq, ProWDSwa

__all__ = ["ProWD", "ProWDDeq", "ProWDSwa"]
