"""``net.h`` and ``net.c``: all that the C of a client must know of a network, a width and a method."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from itertools import accumulate

import torch

from prowd.data.augment import COSINES, OPERATIONS, SINES
from prowd.embedded.plan import CHUNK, HEAD, Plan
from prowd.nets.inputs import code_table
from prowd.nets.lowbit.loss import logit_exponent
from prowd.numbers.bits import Bitwidth
from prowd.numbers.exponential import exponential_tables
from prowd.numbers.quantize import QTensor
from prowd.wire import encode_weights
from prowd.wire.packing import packed_size

__all__ = ["header", "tables"]

CRC, COUNT, SCALE, SIZE = 4, 2, 8, 8  # bytes of fields of a body

HEADER = """/* Written by prowd embed: a client of {width} for {method}, {weights} weights, batches of up to {batch}. */
#ifndef NET_H
#define NET_H

#define NET_HASH UINT64_C({hash:#x})
#define NET_RECIPE UINT64_C({recipe:#x})

enum {{
{sizes}
}};

/* As the preprocessor must know them. */
{defines}

#endif
"""

TABLES = """/* Written by prowd embed: the tables of net.h. */
#include "client.h"

const prowd_stage net_stages[NET_STAGES] = {{
{stages}
}};

const prowd_code net_codes[256] = {{
{codes}
}};

const uint32_t net_exponentials[2][256] = {{{{
{low}
}}, {{
{high}
}}}};

const int16_t net_turns[61][2] = {{
{turns}
}};

const uint8_t net_rows[NET_ROWS] = {{
{rows}
}};

const uint8_t net_reply_rows[NET_REPLY_ROWS] = {{
{reply_rows}
}};

const uint32_t net_scales[NET_STAGES] = {{
{scales}
}};
"""


def header(plan: Plan) -> str:
    """The text of net.h."""
    rows, payloads = _rows(plan, plan.width)
    reply_rows, reply_payloads = _rows(plan, plan.reply_width)
    channels, image_rows, image_columns = plan.architecture.input_shape
    sizes = {
        "STAGES": len(plan.stages),
        "FLAT": plan.flat,
        "CLASSES": plan.architecture.classes,
        "INPUTS": plan.stages[0].received,
        "CHANNELS": channels,
        "IMAGE_ROWS": image_rows,
        "IMAGE_COLUMNS": image_columns,
        "SIGNED": int(plan.signed),
        "WEIGHTS": plan.weights,
        "LOGIT_EXPONENT": logit_exponent(plan.width, plan.local.lowbit.logit_scale),
        "REPLY_BITS": plan.reply_width.bits,
        "ROWS": len(rows),
        "PAYLOADS": payloads,
        "REPLY_ROWS": len(reply_rows),
        "REPLY_PAYLOADS": reply_payloads,
        "UPDATE": 24 + 32 + CRC + len(reply_rows) + reply_payloads,
        "HEAD": HEAD,
        "TASK": HEAD + CRC + len(rows) + payloads,
        "CHUNK": CHUNK,
        "BATCH": plan.batch,
        "EXAMPLES": plan.examples,
        "KEPT": plan.kept,
        "SHARED": plan.shared,
        "VALUES": plan.values,
        "MARKS": plan.marks,
        "FLAT_INPUTS": plan.stages[plan.flat].received,
        "FLAT_ERRORS": plan.flat_errors,
        "WIDEST": plan.widest,
        "PLANE": plan.plane,
        "SPOTS": plan.spots,
        "GRADIENT": plan.sums,
    }
    defines = {
        "BITS": plan.width.bits,
        "REPLY": plan.reply,
        "WIDE_SUMS": int(plan.sum == 8),
        "SQUARED": int(plan.local.lowbit.loss == "squared"),
        "OPERATIONS": sum(1 << OPERATIONS.index(name) for name in plan.local.augment),
    }
    return HEADER.format(
        width=plan.width,
        method=plan.method,
        weights=plan.weights,
        batch=plan.batch,
        hash=plan.architecture.digest,
        recipe=plan.recipe,
        sizes="\n".join(f"    NET_{name} = {value}," for name, value in sizes.items()),
        defines="\n".join(f"#define NET_{name} {value}" for name, value in defines.items()),
    )


def tables(plan: Plan) -> str:
    """The text of net.c."""
    low, high = exponential_tables(logit_exponent(plan.width, plan.local.lowbit.logit_scale))
    reply_rows, _ = _rows(plan, plan.reply_width)
    return TABLES.format(
        stages="\n".join(f"    {{{', '.join(map(str, facts))}}}," for facts in _stages(plan)),
        codes=_numbers(code_table(plan.width, torch.int8 if plan.signed else torch.uint8).tolist()),
        low=_numbers(low.tolist()),
        high=_numbers(high.tolist()),
        turns="\n".join(f"    {{{_int16(cosine)}, {sine}}}," for cosine, sine in zip(COSINES, SINES, strict=True)),
        rows=_numbers(_rows(plan, plan.width)[0]),
        reply_rows=_numbers(reply_rows),
        scales=_numbers(_scales(plan)),
    )


def _stages(plan: Plan) -> Iterable[tuple[int, ...]]:
    """The fields of every ``prowd_stage``; its last four say where things of it begin."""
    weights = accumulate((stage.weights for stage in plan.stages), initial=0)
    values = accumulate((stage.received for stage in plan.stages), initial=0)
    marks = accumulate((stage.given for stage in plan.stages), initial=0)
    flat = accumulate((stage.given for stage in plan.stages[plan.flat :]), initial=0)
    errors = [*[0] * plan.flat, *flat]
    for stage, *places in zip(plan.stages, weights, values, marks, errors, strict=False):
        yield (*astuple(stage), *places)


def _rows(plan: Plan, width: Bitwidth) -> tuple[bytes, int]:
    """What a body says of its tensors before their payloads, scales being 1; and the bytes of all payloads."""
    shapes = plan.architecture.shapes
    body = encode_weights(
        {name: QTensor(torch.zeros(shape, dtype=torch.int16), width) for name, shape in shapes.items()}
    )
    payloads = sum(packed_size(stage.weights, width) for stage in plan.stages)
    return body[CRC : len(body) - payloads], payloads


def _scales(plan: Plan) -> list[int]:
    """Where in the rows the scale of each tensor is."""
    found, at = [], COUNT
    for name, shape in plan.architecture.shapes.items():
        found.append(at + 1 + len(name.encode()) + 2 + 4 * len(shape))
        at = found[-1] + SCALE + SIZE
    return found


def _int16(value: int) -> int:
    """The cosine of 0 is 2^15, which the C code reads without a sign."""
    return value - 2**16 if value >= 2**15 else value


def _numbers(values: Iterable[int]) -> str:
    found: Sequence[int] = list(values)
    return "\n".join("    " + ", ".join(map(str, found[i : i + 16])) + "," for i in range(0, len(found), 16))
