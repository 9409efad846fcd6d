"""The wheel, with files that stand in for the program and the library."""

import base64
import hashlib
import os
import subprocess
import sys
import unittest
import unittest.mock
import zipfile

from support import PYTHON, Case

# What the dynamic loader reads: names of versions that end with a zero byte.
OLD = b"\x7fELF\0GLIBC_2.2.5\0GLIBC_2.28\0 GLIBC_2.99 "
NEW = b"\x7fELF\0GLIBC_2.2.5\0GLIBC_2.34\0"


class Wheel(Case):
    def build(self, program, *options):
        self.put("target/release/gpumem-tui", "")
        self.put("target/embed/libgpumem_alloc.so", "")
        for name, content in (("release/gpumem-tui", program), ("embed/libgpumem_alloc.so", OLD)):
            with open(os.path.join(self.folder, "target", name), "wb") as file:
                file.write(content)
        return subprocess.run(
            [sys.executable, os.path.join(PYTHON, "build.py"), "--out", self.folder, *options],
            env={**os.environ, "CARGO_TARGET_DIR": os.path.join(self.folder, "target")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )

    def test_record_has_every_file(self):
        built = self.build(OLD)
        self.assertEqual(built.stderr, "")
        path = built.stdout.strip()
        self.assertRegex(os.path.basename(path), r"^gpumem_torch-[\d.]+-py3-none-manylinux_2_28_x86_64.whl$")
        with zipfile.ZipFile(path) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith("/RECORD"))
            rows = [line.split(",") for line in wheel.read(name).decode().splitlines()]
            self.assertEqual(sorted(row[0] for row in rows), sorted(wheel.namelist()))
            for file, digest, size in rows[:-1]:
                content = wheel.read(file)
                found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                self.assertEqual((digest, size), ("sha256=" + found, str(len(content))))
            mode = wheel.getinfo("gpumem/bin/gpumem-tui").external_attr >> 16
            self.assertEqual((mode, wheel.read("gpumem/bin/gpumem-tui")), (0o100755, OLD))
            self.assertEqual(wheel.read("gpumem/lib/libgpumem_alloc.so"), OLD)
            package = {name for name in os.listdir(os.path.join(PYTHON, "gpumem")) if name.endswith((".py", ".typed"))}
            self.assertLess({f"gpumem/{name}" for name in package}, set(wheel.namelist()))
            self.assertIn("_allocator.py", package)

    def test_newer_glibc_is_refused(self):
        built = self.build(NEW)
        self.assertEqual(built.returncode, 1)
        self.assertIn("needs glibc 2.34, and the wheel is for 2.28", built.stderr)
        built = self.build(NEW, "--any-glibc")
        self.assertIn("-py3-none-linux_x86_64.whl", built.stdout)

    def test_one_command_builds_both_for_that_glibc(self):
        cargo = self.put("bin/cargo", '#!/bin/sh\necho "$@" >> "$0.log"\ntest "$2" != --locked -o ! -e "$0.fails"\n')
        os.chmod(cargo, 0o755)
        for name in ("release/gpumem-tui", "embed/libgpumem_alloc.so"):
            self.put("target/x86_64-unknown-linux-gnu/" + name, "")
        path = os.pathsep.join([os.path.dirname(cargo), os.environ["PATH"]])
        with unittest.mock.patch.dict(os.environ, PATH=path):
            built = self.build(NEW, "--zigbuild")
            self.assertIn("manylinux_2_28", built.stdout, built.stderr)
            self.put("bin/cargo.fails", "")
            self.assertIn("cargo zigbuild failed", self.build(NEW, "--zigbuild").stderr)
        with open(cargo + ".log") as log:
            first, second, _ = log.read().splitlines()
        self.assertEqual(first, "zigbuild --locked --release -p gpumem-tui --target x86_64-unknown-linux-gnu.2.28")
        self.assertEqual(second, "zigbuild --locked --profile embed -p gpumem-alloc-c --target x86_64-unknown-linux-gnu.2.28")

    def test_what_is_not_built_is_named(self):
        built = self.build(OLD, "--target", "x86_64-unknown-linux-gnu")
        self.assertEqual(built.returncode, 1)
        self.assertIn("release/gpumem-tui: No such file or directory: build it first", built.stderr)


if __name__ == "__main__":
    unittest.main()
