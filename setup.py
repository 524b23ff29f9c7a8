"""Builds the integer kernels where there is a C compiler for x86-64; without them prowd works, only slower."""

import platform
import sys
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).parent
NATIVE = Path("src/prowd/nets/lowbit/native")


def files(pattern: str) -> list[str]:
    """Files of the native part, as setuptools wants them named."""
    return sorted(path.relative_to(HERE).as_posix() for path in (HERE / NATIVE).glob(pattern))


kernels = Extension(
    "prowd.nets.lowbit._native",
    files("*.c"),
    depends=files("*.h"),
    extra_compile_args=["-O3", "-std=c11", "-fvisibility=hidden"],
    py_limited_api=True,
    optional=True,
)
buildable = platform.machine() in {"x86_64", "AMD64"} and sys.platform != "win32"
setup(
    ext_modules=[kernels] if buildable else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if buildable else {},
)
