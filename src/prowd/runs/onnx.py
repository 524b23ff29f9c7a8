"""A trained network as an ONNX file, built node by node. At integer widths it computes the same integers in float32."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prowd.errors import ProwdError
from prowd.nets.architecture import IMAGES, Add, AvgPool, Conv, Flatten, Layer, Linear, MaxPool, Take, alpha
from prowd.nets.inputs import code_table
from prowd.runs.export import check_exact, computed_with, identifier
from prowd.runs.trained import Trained

__all__ = ["export_onnx"]

OPSET, IR = 17, 8


def export_onnx(trained: Trained, folder: Path) -> list[Path]:
    """Write net.onnx: images of bytes in, logits out."""
    if find_spec("onnx") is None:
        raise ProwdError("an ONNX file needs onnx; install it with: in a clone of prowd, pip install '.[onnx]'")
    import onnx
    from onnx import TensorProto, helper

    check_exact(trained)
    graph = _Graph(trained)
    kind = TensorProto.UINT8 if trained.images == torch.uint8 else TensorProto.INT8
    images = helper.make_tensor_value_info("images", kind, ["N", *trained.architecture.input_shape])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", trained.architecture.classes])
    made = helper.make_graph(graph.nodes, "prowd", [images], [logits], graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    onnx.checker.check_model(model)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "net.onnx")
    return [folder / "net.onnx"]


class _Graph:
    """Nodes and constants, layer by layer."""

    def __init__(self, trained: Trained) -> None:
        self.trained, self.exact = trained, not trained.width.is_float
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.weights = iter(computed_with(trained))
        self.outputs = {IMAGES: self._inputs()}
        reads = trained.architecture.reads
        for number, layer in enumerate(trained.architecture.layers):
            self.outputs[number] = self._layer(layer, [self.outputs[source] for source in reads[number]])
        self._node("Identity", [self.outputs[len(reads) - 1]], "logits")

    def _node(self, kind: str, inputs: Sequence[str], name: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = name or f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def _constant(self, value: Any, name: str = "") -> str:
        from onnx import numpy_helper

        name = name or f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def _inputs(self) -> str:
        """Codes by a table, or floats in [−1, 1], of images of bytes."""
        from onnx import TensorProto

        if self.exact:
            table = code_table(self.trained.width, self.trained.images).numpy()
            index = self._node(
                "Cast", ["images"], to=TensorProto.INT32
            )  # of int8 from −128, and −1 is the table's last
            return self._node("Gather", [self._constant(table, "codes"), index], axis=0)
        floats = self._node("Cast", ["images"], to=TensorProto.FLOAT)
        if self.trained.images == torch.int8:
            return self._node("Div", [floats, self._constant(128)])
        return self._node("Sub", [self._node("Div", [floats, self._constant(127.5)]), self._constant(1)])

    def _layer(self, layer: Layer, inputs: Sequence[str]) -> str:
        if isinstance(layer, Take):
            return inputs[0]
        if isinstance(layer, Flatten):
            return self._node("Flatten", inputs, axis=1)
        if isinstance(layer, MaxPool | AvgPool):
            kind = "MaxPool" if isinstance(layer, MaxPool) else "AveragePool"
            pooled = self._node(kind, inputs, kernel_shape=layer.kernel, strides=layer.stride)
            return self._node("Round", [pooled]) if self.exact and isinstance(layer, AvgPool) else pooled
        if isinstance(layer, Add):
            return self._end(layer, self._node("Add", inputs))
        weight = self._constant(next(self.weights).numpy(), identifier(layer))
        if isinstance(layer, Linear):
            sums = self._node("Gemm", [inputs[0], weight], transB=1)
        else:
            pads = (*layer.padding, *layer.padding)
            sums = self._node("Conv", [inputs[0], weight], strides=layer.stride, pads=pads, group=layer.groups)
        if self.exact:
            sums = self._node("Round", [self._node("Div", [sums, self._constant(2 * alpha(layer))])])
        return self._end(layer, sums)

    def _end(self, layer: Conv | Linear | Add, given: str) -> str:
        """Clip and ReLU."""
        if not self.exact:
            return self._node("Relu", [given]) if layer.relu else given
        top = self.trained.width.max_code
        return self._node("Clip", [given, self._constant(0 if layer.relu else -top), self._constant(top)])
