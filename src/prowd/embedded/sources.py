"""A folder with all that a client needs: the C sources as they are, what is written for a network, and a Makefile."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from prowd.embedded.header import header, tables
from prowd.embedded.plan import STACK, Plan
from prowd.errors import RunError

__all__ = ["C_FILES", "find_sources", "write_client"]

INSTALLED = Path(__file__).parent / "c"  # where a wheel has them; see setup.py
CLONE = Path(__file__).parents[3] / "embedded"
C_FILES = "client/*.c", "core/examples.c", "core/loss.c", "net.c"
FILES = (
    "client/*",
    "core/examples.c",
    "core/loss.c",
    "core/numbers.h",
    "core/prowd.h",
    "platforms/*.c",
    "platforms/bare/*",
)
LINKER = "platforms/mps2.ld"
SLACK = 4096  # bytes that a board has beyond what is planned, where nobody says how many

MAKEFILE = """# Written by prowd embed. `make posix` needs a C compiler; the others zig: pip install ziglang==0.15.2
CC ?= cc
ZIG ?= python3 -m ziglang
FLAGS := -std=c99 -O2 -Wall -Wextra -I. -Iclient -Icore
BARE := -target thumb-freestanding-eabi -ffreestanding -ffunction-sections -fdata-sections -Iplatforms/bare
BOARD := -T mps2.ld -Wl,--gc-sections,--entry=prowd_start
SOURCES := $(wildcard client/*.c core/*.c) net.c

posix: $(SOURCES) ## a program: ./posix CARD
	$(CC) $(FLAGS) $(SOURCES) platforms/posix.c -o $@
cortex-m3.elf cortex-m4.elf: %.elf: $(SOURCES) ## for qemu-system-arm -M mps2-an385 or mps2-an386
	$(ZIG) cc $(BARE) -mcpu=$(subst -,_,$*) $(FLAGS) $(SOURCES) platforms/cortexm.c $(BOARD) -o $@
"""


def find_sources() -> Path:
    """The folder of the C sources: inside the installed package, or of a clone."""
    for folder in (INSTALLED, CLONE):
        if (folder / "client/client.h").is_file():
            return folder
    raise RunError(f"the C sources are neither in {INSTALLED} nor in {CLONE}; install prowd anew, or work in a clone")


def write_client(plan: Plan, folder: Path, ram: int | None = None) -> list[Path]:
    """Write everything that is to be compiled into a folder. A board has ``ram`` bytes of memory."""
    sources, written = find_sources(), list[Path]()
    for pattern in FILES:
        for path in sorted(sources.glob(pattern)):
            if path.is_file():
                to = folder / path.relative_to(sources)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, to)
    size = ram or (plan.total + SLACK) // 1024 * 1024
    script = (sources / LINKER).read_text("utf-8")
    script = re.sub("LENGTH = 64K", f"LENGTH = {size}", script)
    script = re.sub("prowd_stack = 2K", f"prowd_stack = {STACK}", script)
    texts = {"net.h": header(plan), "net.c": tables(plan), "mps2.ld": script, "Makefile": MAKEFILE}
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
        written.append(folder / name)
    return written
