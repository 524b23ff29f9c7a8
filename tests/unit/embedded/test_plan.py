"""The memory of a client before it is compiled: what is counted, what is refused, what is made of a limit."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from prowd.device.scene import ClientSpec, LocalSettings, Scene
from prowd.embedded.network import stages_of
from prowd.embedded.plan import Plan, plan_of
from prowd.embedded.sources import write_client
from prowd.errors import ConfigError
from prowd.methods import Method
from prowd.methods.fedavg import FedAvg
from prowd.methods.fedpaq import FedPaq
from prowd.methods.fedprox import FedProx
from prowd.methods.local import Local
from prowd.methods.plus import ProWDPlus
from prowd.nets import Architecture, AvgPool, Conv, Flatten, Linear, MaxPool, build
from prowd.numbers.bits import FLOAT32, Bitwidth
from prowd.wire import Task, encode_task

WATCH = build("watch", (6, 128, 1), 7)


def planned(
    architecture: Architecture = WATCH,
    bits: int = 8,
    method: Method | None = None,
    batch: int = 32,
    ram: int | None = None,
) -> Plan:
    specs = ClientSpec(0, Bitwidth(bits), 300), ClientSpec(1, FLOAT32, 300)
    scene = Scene(architecture, specs, local=LocalSettings(batch=batch))
    return plan_of(scene, method or FedAvg(), specs[0], signed=True, ram=ram)


def sizes(plan: Plan) -> dict[str, int]:
    return {part.name: part.size for part in plan.parts}


def test_the_parts_of_the_watch_at_its_batch_are_those_counted_by_hand() -> None:
    found = sizes(planned())
    assert found["weights"] == 480 + 1280 + 2560 + 5120 + 8192 + 448
    assert found["ternary weights, as a step began"] == 18080 // 4
    assert found["gradient, 5120 of 8192 at once"] == 4 * 5120
    given = 16 * 64 + 16 * 32 + 32 * 16 + 32 * 4 + 64 + 7
    assert found["activations of 1 of 32 images"] == 768 + 2 * given
    assert found["inputs of the linear layers, of the other images"] == 32 * 128
    assert found["errors of the linear layers"] == 32 * (64 + 7)
    assert "an image as it is varied" not in found
    assert planned().total < 64 * 1024


def test_wider_codes_and_movements_take_more() -> None:
    assert sizes(planned(bits=9))["weights"] == 2 * sizes(planned(bits=8))["weights"]
    assert planned(bits=16).sum == 8
    assert planned(bits=8).sum == 4
    received = "weights as received, to send how far they moved"
    assert sizes(planned(method=ProWDPlus()))[received] == sizes(planned(method=FedPaq()))[received] == 18080
    assert received not in sizes(planned())
    assert received not in sizes(planned(bits=2, method=ProWDPlus()))  # three levels are all that it has


def test_the_memory_does_not_grow_with_the_batch_but_for_linear_layers() -> None:
    assert planned(batch=64).total - planned(batch=32).total == 32 * (128 + 64 + 7 + 4)


@pytest.mark.parametrize("ram", [50, 60, 64, 80, 100, 150, 200, 1000])
def test_a_limit_is_used_and_kept(ram: int) -> None:
    plan = planned(ram=ram * 1024)
    assert plan.total <= ram * 1024
    more = replace(plan, kept=plan.kept + 1) if plan.kept < plan.batch else None
    assert more is None or more.total > ram * 1024
    assert plan.sums == plan.whole_gradient or plan.kept == 1


def test_what_does_not_fit_is_refused_with_its_largest_part_and_what_would_do() -> None:
    with pytest.raises(
        ConfigError, match=r"ram: 40.0K; .*17.7K of it for weights; accepted: (\d+\.\d)K or more"
    ) as error:
        planned(method=ProWDPlus(), ram=40 * 1024)
    assert "a method that sends weights" in str(error.value)
    least = float(str(error.value).split("accepted: ")[1].split("K")[0])
    assert planned(method=ProWDPlus(), ram=round((least + 0.1) * 1024)).kept == 1


@pytest.mark.parametrize("method", [Local(), FedProx()])
def test_methods_whose_clients_do_more_are_refused(method: Method) -> None:
    with pytest.raises(ConfigError, match=f"method: {method.name}"):
        planned(method=method)


def test_a_float32_client_is_none() -> None:
    specs = (ClientSpec(0, FLOAT32, 5),)
    with pytest.raises(ConfigError, match="width: float32; accepted: int2 to int16"):
        plan_of(Scene(WATCH, specs), FedAvg(), specs[0], signed=True)


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ((Conv("a", 1, 2), AvgPool((8, 8), (8, 8)), Flatten(), Linear("b", 2, 2, relu=False)), "AvgPool"),
        ((Conv("a", 1, 2), MaxPool((3, 3), (2, 2)), Flatten(), Linear("b", 18, 2, relu=False)), "overlap"),
        ((MaxPool(), Flatten(), Linear("b", 16, 2, relu=False)), "MaxPool"),
        ((Conv("a", 1, 2), MaxPool(), MaxPool(), Flatten(), Linear("b", 8, 2, relu=False)), "MaxPool"),
        (
            (
                Conv("a", 1, 2, (1, 1), padding=(0, 0)),
                MaxPool((8, 1), (8, 1)),
                Flatten(),
                Linear("b", 16, 2, relu=False),
            ),
            "",
        ),
    ],
    ids=str,
)
def test_layers_that_it_does_not_compute_are_named(layers: tuple[Conv, ...], reason: str) -> None:
    architecture = Architecture(layers, (1, 8, 8))
    if not reason:
        assert stages_of(architecture, Bitwidth(8))[0].out_rows == 1
        return
    with pytest.raises(ConfigError, match=reason):
        stages_of(architecture, Bitwidth(8))


def test_sums_that_32_bits_do_not_hold_are_refused() -> None:
    architecture = Architecture((Flatten(), Linear("a", 70_000, 2, relu=False)), (7, 100, 100))
    assert stages_of(architecture, Bitwidth(8))
    with pytest.raises(ConfigError, match="32 bits do not hold its sums at int16"):
        stages_of(architecture, Bitwidth(16))


def test_a_window_over_time_is_turned_into_a_row() -> None:
    first = stages_of(WATCH, Bitwidth(8))[0]
    assert (first.rows, first.columns, first.kernel_rows, first.kernel_columns) == (1, 128, 1, 5)
    assert (first.pad_rows, first.pad_columns, first.pool_rows, first.pool_columns) == (0, 2, 1, 2)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("kept", [1, 5])
@pytest.mark.parametrize("bits", [8, 13])
def test_the_plan_counts_what_the_compiler_lays_out(bits: int, kept: int, tmp_path: Path) -> None:
    plan = replace(planned(bits=bits, method=ProWDPlus()), kept=kept)
    write_client(plan, tmp_path)
    (tmp_path / "size.c").write_text(
        '#include <stdio.h>\n#include "link.h"\nint main(void) { printf("%zu", sizeof(prowd_link)); }\n'
    )
    subprocess.run(["cc", "-I.", "-Iclient", "size.c", "-o", "size"], cwd=tmp_path, check=True)
    laid_out = int(subprocess.run([tmp_path / "size"], capture_output=True, text=True, check=True).stdout)
    assert 0 <= plan.total - sizes(plan)["stack, as allowed for"] - laid_out < 600


def test_the_longest_task_that_a_device_takes_has_all_weights_and_a_head() -> None:
    plan = planned()
    weights = FedAvg().dispatch(
        Scene(WATCH, specs := (ClientSpec(0, Bitwidth(8), 9),)), FedAvg().init(Scene(WATCH, specs)), specs[0]
    )
    from prowd.embedded.header import header

    (most,) = (int(line.split()[2].rstrip(",")) for line in header(plan).splitlines() if "NET_TASK =" in line)
    task = encode_task(Task(1, 2, 3, weights, {"measure_received": 1.0, "measure_trained": 0.0})).join()
    assert len(task) <= most < len(task) + 512
