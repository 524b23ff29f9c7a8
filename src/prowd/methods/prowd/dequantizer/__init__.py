"""φ, the progressive weight dequantizer: weight modules, the network, and its fit (Section 4.2, Algorithm 2)."""

from prowd.methods.prowd.dequantizer.fitting import Losses, fit, lift, losses
from prowd.methods.prowd.dequantizer.modules import assemble, cut, eligible
from prowd.methods.prowd.dequantizer.network import Dequantizer, dequantize, dequantize_in_stages
from prowd.methods.prowd.dequantizer.settings import DequantizerSettings, Ladder
from prowd.methods.prowd.dequantizer.source import Net, Source

__all__ = [
    "Dequantizer",
    "DequantizerSettings",
    "Ladder",
    "Losses",
    "Net",
    "Source",
    "assemble",
    "cut",
    "dequantize",
    "dequantize_in_stages",
    "eligible",
    "fit",
    "lift",
    "losses",
]
