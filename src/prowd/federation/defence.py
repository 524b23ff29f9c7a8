"""What one device can do to the others: its movement is bounded, and how much it counts for.

Every update is a movement from what its client was sent. A Float32 client whose tensors are farther from that than its
local steps could take them has not done what it was asked, and its update is refused. A tensor that has moved much
farther than those of the other clients of its width is clipped, and sooner if its client moves against the others. Who
claims many more examples than the others counts for a bounded number, and for the fewer the farther it has moved:
nobody's share times movement is more than that of the median client at the bound. If the run asks for it (``robust``),
those clients of a width that are farthest from the others are left out. What was done to whom is in the report of the
round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor

from prowd.device.scene import Scene
from prowd.errors import WireError
from prowd.federation.inbox import Admitted
from prowd.federation.report import Absence, Limit
from prowd.methods import Method, Slot
from prowd.numbers.averages import Rule, far_off
from prowd.numbers.bits import Bitwidth
from prowd.numbers.quantize import QTensor, quantize
from prowd.numbers.seeds import generator
from prowd.wire import Task, Update

__all__ = ["clipped", "counted", "defend"]

FEWEST = 3  # updates of a width that have a median worth the name
ENOUGH = 5  # updates of a width that show where most go: of four people one may well go its own way
STILL = 0.3  # of its own norm a tensor may always move
NOISE = 0.1  # up to which mean cosines of honest clients go below zero where the others still agree
OPPOSED = 0.4  # times as much as clients usually agree with the others, one must disagree to be against them
CORRECTIONS = 2.0  # times as far as plain steps can take a tensor, those that a method corrects may


@dataclass(frozen=True)
class _Moved:
    """An update, what its client was sent of each tensor in the form in which it travels back, and how far it went."""

    update: Update
    origins: Mapping[str, QTensor | None]
    """None: the message itself is the movement."""
    sizes: Mapping[str, float]
    """Norm of what the client was sent."""
    norms: Mapping[str, float]

    @classmethod
    def of(cls, update: Update, task: Task, slots: Mapping[str, Slot]) -> _Moved:
        origins: dict[str, QTensor | None] = {}
        sizes: dict[str, float] = {}
        norms: dict[str, float] = {}
        for name, tensor in update.weights.items():
            sent = task.weights.get(name)
            if sent is None and not slots[name].movement:
                continue  # a method's own tensor, which is no movement from anything that was sent
            origins[name] = None if sent is None or slots[name].movement else quantize(sent.value(), tensor.width)
            sizes[name] = 0.0 if sent is None else _norm((origins[name] or sent).value())
            norms[name] = _norm(_movement(tensor, origins[name]))
        return cls(update, origins, sizes, norms)

    def unit(self, name: str) -> Tensor:
        """The direction in which a tensor has moved, or zeros."""
        return _movement(self.update.weights[name], self.origins[name]).flatten() / (self.norms[name] or 1.0)


def defend(scene: Scene, method: Method, tasks: Mapping[int, Task], admitted: Admitted) -> Admitted:
    """Of the updates that were admitted, those that what was sent allows, bounded, and whom that has touched."""
    moved: list[_Moved] = []
    refused, limited = list(admitted.refused), list(admitted.limited)
    for update in admitted.updates:
        task = tasks[update.client]
        try:
            one = _Moved.of(update, task, method.expects(scene, scene.by_id[update.client]))
            _check_reach(scene, task, one)
            moved.append(one)
        except WireError as error:
            refused.append(Absence(update.client, str(update.width), str(error)))
    bounds = _bounds(moved, scene.defence.clip)
    trimmed = _trimmed(moved, scene.defence.robust)
    updates: list[Update] = []
    for one in moved:
        update, far, room = _clip(scene, one, bounds.get(one.update.client, {}))
        update, many = counted(scene, update, room)
        limited += [limit for limit in (far, many, trimmed.get(update.client)) if limit is not None]
        updates.append(update)
    return Admitted(updates, sorted(refused, key=lambda one: one.client), limited, frozenset(trimmed))


def counted(scene: Scene, update: Update, room: float = math.inf) -> tuple[Update, Limit | None]:
    """The update with the number of examples that it counts for.

    ``room``, 1 or more, is how many times as far it might have moved: of a client with more examples than the median,
    so many medians count.
    """
    defence, claimed = scene.defence, update.num_examples
    if defence.weighting == "uniform":
        return replace(update, num_examples=1), None
    if defence.cap is None:
        return update, None
    usual, times = scene.usual_examples, min(defence.cap, room)
    most = max(1, int(times * usual))
    if claimed <= most:
        return update, None
    so_far = ", as far as it moved" if room < defence.cap else ""
    reason = f"{claimed} examples; counted: {most}, {times:.3g} times the median of all clients{so_far}"
    return replace(update, num_examples=most), Limit(update.client, str(update.width), "capped", reason)


def clipped(tensor: QTensor, origin: QTensor | None, most: float, random: torch.Generator) -> QTensor:
    """A tensor no farther than ``most`` from where it came from, by l2 norm, in the same format.

    Floats, and movements, which have a scale, are scaled. Integer weights keep their codes: entry by entry, in random
    order, those that moved stay where they are until the bound is reached, and the others go back.
    """
    moved = _movement(tensor, origin)
    if origin is None:
        return replace(tensor, scale=tensor.scale * most / _norm(moved))
    if tensor.width.is_float:
        start = origin.value().double()
        return replace(tensor, codes=(start + moved * (most / _norm(moved))).float())
    order = torch.randperm(moved.numel(), generator=random)
    kept = torch.empty(moved.numel(), dtype=torch.bool)
    kept[order] = moved.flatten()[order].square().cumsum(0) <= most**2
    return replace(tensor, codes=torch.where(kept.view(moved.shape), tensor.codes, origin.codes))


def _bounds(moved: Sequence[_Moved], times: float | None) -> dict[int, dict[str, float]]:
    """How far each tensor of a client may have moved; nothing is said of widths with too few updates to tell.

    Where training has settled, medians are next to nothing, so a tensor may always move by a share of its own norm. Not
    so that of a client which moves against the others of its width, and takes back what they have learnt: it may go as
    far as the median. That is looked at only where there are enough others to show where most go.
    """
    bounds: dict[int, dict[str, float]] = {}
    for those in _by_width(moved):
        if times is None or len(those) < FEWEST:
            continue
        medians = {name: median(one.norms[name] for one in those) for name in those[0].norms}
        agreements = _agreement(those) if len(those) >= ENOUGH else [0.0] * len(those)
        usual = median(agreements)
        for one, along in zip(those, agreements, strict=True):
            opposed = usual > 0 and along < -max(OPPOSED * usual, NOISE)
            bounds[one.update.client] = {
                name: min(times, 1.0) * far if opposed else max(times * far, STILL * one.sizes[name])
                for name, far in medians.items()
            }
    return bounds


def _trimmed(moved: Sequence[_Moved], rule: Rule) -> dict[int, Limit]:
    """Who is left out: of every width those farthest from the middle of all, before anything is clipped.

    Widths are looked at one by one, because ternary weights and floats are far from each other without anybody lying;
    and clients as a whole, because of a client that lies in some entries the others are not to be trusted either.
    """
    limits: dict[int, Limit] = {}
    for those in _by_width(moved) if rule.kind == "trimmed" else ():
        if not those[0].norms:
            continue  # nothing was sent
        far = far_off([[_movement(one.update.weights[name], one.origins[name]) for name in one.norms] for one in those])
        order = sorted(range(len(those)), key=lambda n: (far[n], n))
        for n in order[len(those) - rule.left_out(len(those)) :]:
            update = those[n].update
            reason = f"{far[n]:.3g} times as far from the others of its width as usual; {rule.share:g} are left out"
            limits[update.client] = Limit(update.client, str(update.width), "trimmed", reason)
    return limits


def _by_width(moved: Sequence[_Moved]) -> list[list[_Moved]]:
    groups: dict[Bitwidth, list[_Moved]] = {}
    for one in moved:
        groups.setdefault(one.update.width, []).append(one)
    return [*groups.values()]


def _agreement(those: Sequence[_Moved]) -> list[float]:
    """The cosines between each client's movement and those of the others, their mean over the others and all tensors.

    Lengths do not count, or one that goes very far would be the direction of all.
    """
    found = [0.0] * len(those)
    for name in those[0].norms:
        total = torch.zeros(those[0].update.weights[name].codes.numel(), dtype=torch.float64)
        for one in those:
            total += one.unit(name)
        for n, one in enumerate(those):
            unit = one.unit(name)  # made twice: those of all clients at once may not fit into memory
            found[n] += float(torch.dot(unit, total - unit))
    pairs = max(1, len(those[0].norms) * (len(those) - 1))
    return [total / pairs for total in found]


def _clip(scene: Scene, one: _Moved, bounds: Mapping[str, float]) -> tuple[Update, Limit | None, float]:
    """The update within its bounds, whether that has changed it, and how many times as far it might have moved."""
    update, weights = one.update, dict(one.update.weights)
    far: dict[str, float] = {}
    room = math.inf
    for name, most in bounds.items():
        room = min(room, most / one.norms[name]) if one.norms[name] else room
        if one.norms[name] > most:
            far[name] = one.norms[name] / most if most else math.inf
            random = generator(scene.seed, "clip", update.round, update.client, name)
            weights[name] = clipped(weights[name], one.origins[name], most, random)
    if not far:
        return update, None, room
    worst = max(far, key=far.__getitem__)
    reason = f"{len(far)} of {len(weights)} tensors moved too far, {worst!r} by {far[worst]:.3g} times the bound"
    return replace(update, weights=weights), Limit(update.client, str(update.width), "clipped", reason), 1.0


def _check_reach(scene: Scene, task: Task, one: _Moved) -> None:
    """See that a Float32 client's steps, whose gradients are clipped, could have taken it where it is."""
    if not one.update.width.is_float:
        return  # integer codes have a largest one
    local, work = scene.local.float32, task.work
    for name, reach in local.reach(scene.architecture, work.steps, work.rate.value).items():
        most = CORRECTIONS * reach + work.steps * 2.0**-23 * one.sizes.get(name, 0.0)  # and what floats round
        if one.norms.get(name, 0.0) > most:
            found = f"{name!r} is {one.norms[name]:.6g} from what was sent"
            raise WireError(f"{found}; accepted: to {most:.6g}, as far as {work.steps} steps can go")


def _movement(tensor: QTensor, origin: QTensor | None) -> Tensor:
    value = tensor.value().double()
    return value if origin is None else value - origin.value().double()


def _norm(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values.double()))
