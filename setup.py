"""Builds the integer kernels where there is a C compiler; without them prowd works, only slower.

The vector kernels are for x86-64 and AArch64, by GCC or Clang; their sources ask the compiler which of the two it is.
"""

import platform
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
NATIVE = Path("src/prowd/nets/lowbit/native")
CORE = Path("embedded/core")


def files(pattern: str, folder: Path = NATIVE) -> list[str]:
    """Files of a folder, as setuptools wants them named."""
    return sorted(path.relative_to(HERE).as_posix() for path in (HERE / folder).glob(pattern))


def clones() -> list[str]:
    """Compile what is worth it once for each instruction set, where compiler and loader can choose among them."""
    if not (sys.platform == "linux" and platform.machine() == "x86_64"):
        return []
    return ['-DPROWD_CLONES=__attribute__((target_clones("arch=x86-64-v4","avx2","default")))']


class WithSources(build_py):
    """Takes the C sources of embedded/ along, for `prowd embed`; a clone has them where they are."""

    def run(self) -> None:
        """Copy them beside the Python files."""
        super().run()
        if not self.editable_mode:
            for part in ("client", "core", "platforms"):
                to = Path(self.build_lib, "prowd/embedded/c", part)
                shutil.copytree(HERE / "embedded" / part, to, dirs_exist_ok=True)


kernels = Extension(
    "prowd.nets.lowbit._native",
    [*files("*.c"), *files("*.c", NATIVE / "python")],
    depends=[*files("*.h"), *files("*.h", NATIVE / "python"), *files("*.h", CORE)],
    include_dirs=[CORE.as_posix()],
    extra_compile_args=["-O3", "-std=c11", "-fvisibility=hidden"],
    py_limited_api=True,
    optional=True,
)
core = Extension(
    "prowd.nets.lowbit._core",
    ["src/prowd/nets/lowbit/c99/module.c", *files("*.c", CORE)],
    depends=files("*.h", CORE),
    include_dirs=[CORE.as_posix()],
    extra_compile_args=["-O3", "-std=c11", "-fvisibility=hidden", *clones()],
    py_limited_api=True,
    optional=True,
)
buildable = platform.machine() in {"x86_64", "AMD64", "aarch64", "arm64"} and sys.platform != "win32"
setup(
    cmdclass={"build_py": WithSources},
    ext_modules=[kernels, core] if buildable else [core],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
