"""The same federation on real machines, over Flower (extra ``flower``). The only room that imports flwr."""
