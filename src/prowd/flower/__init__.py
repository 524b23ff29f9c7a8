"""The same federation on real machines, over Flower (extra ``prowd[flower]``). The only room that imports flwr."""
