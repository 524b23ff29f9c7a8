"""The C code under AddressSanitizer and UndefinedBehaviorSanitizer: ``make sanitize``. Linux, with gcc.

First the core with its driver, in memory of exactly the size that it asks for, on random networks and on the largest
numbers; then Python's extension modules, which hold the vector kernels, in the property tests of whole rounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.embedded.driver import SANITIZERS, answers, compiled, compiler
from tests.embedded.groups import all_cases

ROOT = Path(__file__).parents[2]
TESTS = ("tests/properties/test_integer_client.py", "tests/properties/test_int8_properties.py")


def main() -> None:
    """Run both, and end with an error at the first finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the networks (default 1; make test has 0)")
    parser.add_argument("--times", type=int, default=8, help="as many cases as make test has (default 8)")
    arguments = parser.parse_args()
    if compiler() is None:
        raise SystemExit("there is no C compiler; accepted: cc, gcc or clang in PATH")
    with tempfile.TemporaryDirectory() as folder:
        check_core(Path(folder), arguments.seed, arguments.times)
        check_modules(Path(folder) / "src")


def check_core(folder: Path, seed: int, times: int) -> None:
    """The driver must answer as the oracle does, and the sanitizers stay silent."""
    driver = compiled(folder / "driver", SANITIZERS)
    asked = all_cases(seed, times)
    found = answers(driver, [case.question for case in asked])
    wrong = [case.question for case, numbers in zip(asked, found, strict=True) if numbers != case.expected]
    if wrong:
        raise SystemExit(f"{len(wrong)} of {len(asked)} answers differ from the oracle's; the first: {wrong[0]}")
    print(f"core: {len(asked)} cases, no finding", flush=True)


def check_modules(source: Path) -> None:
    """Tests of the extension modules, compiled anew into a copy of the package."""
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    environment = {**os.environ, "CFLAGS": " ".join(SANITIZERS), "LDFLAGS": "-fsanitize=address,undefined"}
    build = [sys.executable, "setup.py", "-q", "build_ext"]
    places = ["--build-lib", str(source), "--build-temp", str(source.parent / "objects")]
    subprocess.run([*build, *places], cwd=ROOT, env=environment, check=True)
    libraries = [
        subprocess.run([compiler() or "cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        for name in ("libasan.so", "libubsan.so")
    ]
    environment |= {
        "PYTHONPATH": f"{source}{os.pathsep}{ROOT}",
        "LD_PRELOAD": " ".join(library.stdout.strip() for library in libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps what it has until it ends
        "OMP_NUM_THREADS": "1",
    }
    for module in ("_core", "_native"):
        if not list((source / "prowd/nets/lowbit").glob(f"{module}.*.so")):
            print(f"{module}: not built on this machine")
    if subprocess.run([sys.executable, "-m", "pytest", *TESTS], cwd=ROOT, env=environment, check=False).returncode:
        raise SystemExit("extension modules: see above")
    print("extension modules: no finding")


if __name__ == "__main__":
    main()
