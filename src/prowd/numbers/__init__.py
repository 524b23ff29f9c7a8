"""Number formats: widths, quantizers, integer codes and keyed random streams. Every formula, once."""
