"""What a device measures of a model on examples: right how often, by class and by person, and what it mistakes."""

from __future__ import annotations

import torch

from prowd.device.training import Examples, Model, predicted

__all__ = ["CLASSES", "CONFUSION", "MOST_CLASSES", "in_detail", "name_of"]

CLASSES, CONFUSION = 1.0, 2.0  # how far a task asks for detail: by class and person, or for every pair of classes too
MOST_CLASSES = 24  # of which a device says how often each is taken for each: an update has room for so many numbers


def name_of(what: str, *where: int) -> str:
    """The name of a measurement: ``accuracy_class_3``, ``accuracy_person_7``, ``confusion_3_5``."""
    return "_".join((what, *map(str, where)))


def in_detail(model: Model, examples: Examples, classes: int, detail: float, device: torch.device) -> dict[str, float]:
    """Accuracy for each class and each person that the examples have, and the shares of a class taken for others.

    A share that is 0 is not sent.
    """
    found, labels = predicted(model, examples, device), examples.labels
    right = found == labels
    metrics: dict[str, float] = {}
    groups = [("accuracy_class", labels)] + ([] if examples.people is None else [("accuracy_person", examples.people)])
    for what, of in groups:
        for group in torch.unique(of).tolist():
            metrics[name_of(what, group)] = float(right[of == group].double().mean())
    if detail >= CONFUSION and classes <= MOST_CLASSES:
        for truth in torch.unique(labels).tolist():
            counts = found[labels == truth].bincount(minlength=classes).tolist()
            shares = {name_of("confusion", truth, taken): count / sum(counts) for taken, count in enumerate(counts)}
            metrics |= {name: share for name, share in shares.items() if share}
    return metrics
