"""gpumem's allocator in programs, with stand-ins for torch, cupy and rmm.

Tests that need the library are skipped unless GPUMEM_LIBRARY names it. CUDA is a library of our own then: cargo builds both.

    GPUMEM_LIBRARY=../../../target/debug/libgpumem_alloc.so LD_LIBRARY_PATH=FOLDER python3 -m unittest test_allocator

FOLDER has target/debug/libgpumem_fake_cuda.so under the name libcuda.so.
"""

import os
import sys
import unittest

from support import BOOTSTRAP, PYTHON, STANDIN, Case

LIBRARY = os.environ.get("GPUMEM_LIBRARY")
needs_library = unittest.skipUnless(LIBRARY, "GPUMEM_LIBRARY does not name the library")
CHANGE = "import gpumem, torch\ntorch.cuda.memory.change_current_allocator(gpumem.allocator)\n"


class Use(Case):
    def use(self, text, path=(PYTHON, STANDIN), **more):
        """Runs a program that uses the library. Returns its output, and what the package says."""
        more = {"GPUMEM_LIBRARY": os.path.abspath(LIBRARY), "GPUMEM_ALLOC_CONF": "publish:off", **more}
        ran = self.run_program(text, list(path), begin="", **more)
        self.assertEqual(ran.code, 0, ran.stderr)
        # The library says on stderr what it refuses, and that a stand-in for torch has no C++ classes.
        library = ("gpumem: gpumem_", "gpumem: (further errors")
        return ran.stdout, [line for line in ran.stderr.splitlines() if not line.startswith(library)]

    def assert_prints(self, text, expected, **more):
        self.assertEqual(self.use(text, **more), (expected, []))


class WithoutLibrary(Case):
    def run_without(self, text, **more):
        return self.run_program(text, begin="", **more)

    def test_import_loads_nothing(self):
        ran = self.run_without(
            """
            import gpumem, sys
            repr(gpumem.allocator)
            print([name for name in ("torch", "cupy", "rmm") if name in sys.modules], "libgpumem" in open("/proc/self/maps").read())
            """
        )
        self.assert_well(ran)
        self.assertEqual(ran.stdout, "[] False\n")

    def test_missing_library_is_an_error_that_helps(self):
        for use in ("stats()", "malloc", "rmm()", "library"):
            ran = self.run_without(f"import gpumem\ntry: gpumem.allocator.{use}\nexcept RuntimeError as error: print(error)")
            self.assert_well(ran)
            self.assertEqual(
                ran.stdout,
                "gpumem: libgpumem_alloc.so was not found: set GPUMEM_LIBRARY to its path "
                "(cargo build --profile embed -p gpumem-alloc-c builds it)\n",
            )

    def test_publishing_needs_no_library(self):
        ran = self.run_program(
            "import gpumem, torch; gpumem.publish(); torch.empty(1); wait_for('stats')\nwith gpumem.tag('x'): gpumem.step()"
        )
        self.assert_well(ran)
        self.assertEqual([message["name"] for message in ran.of("mark")], ["x", "step", "other"])

    def test_tags_steps_and_marks_reach_a_library_in_use(self):
        ran = self.run_without(
            """
            import gpumem
            class Library:
                def __getattr__(self, name):
                    return lambda *arguments: print(name[len("gpumem_"):], *arguments) or 0
            with gpumem.tag("before"):
                gpumem.allocator._library = Library()
            with gpumem.tag("forward"):
                gpumem.step()
            gpumem.mark("x")
            """
        )
        self.assert_well(ran)
        calls = "mark b'other'|mark b'forward'|scope_push b'forward'|step|mark b'step'|scope_pop|mark b'other'|mark b'x'"
        self.assertEqual(ran.stdout.splitlines(), calls.split("|"))

    def test_what_is_no_library_of_ours(self):
        with open("/proc/self/maps") as maps:
            libc = next(line.split()[-1] for line in maps if "/libc" in line and ".so" in line)
        for path, why in (
            ("/no/library.so", "cannot load /no/library.so: "),
            (self.put("empty.so", ""), "cannot load "),
            (libc, f"{libc} is not gpumem's library, or an old one: it lacks gpumem_alloc"),
        ):
            ran = self.run_without("import gpumem\ntry: gpumem.allocator.library\nexcept RuntimeError as e: print(e)", GPUMEM_LIBRARY=path)
            self.assertIn("gpumem: " + why, ran.stdout)

    def test_run_with_a_library_that_is_gone(self):
        text = "try: import {0}\nexcept RuntimeError as error: print(error)\n"
        ran = self.run_unprepared(text.format("torch") + text.format("cupy"), GPUMEM_RUN="allocator", GPUMEM_LIBRARY="/no/library.so")
        self.assertEqual((ran.code, ran.stdout.count("gpumem: cannot load /no/library.so: ")), (0, 2), ran.stderr)


@needs_library
class Torch(Use):
    def test_change_current_allocator(self):
        self.assert_prints(
            CHANGE
            + """
            hooks = torch.cuda.memory.current
            print(hooks.names, len(hooks.told), all(hooks.told.values()))
            torch.empty(3 << 20)
            figures = torch.cuda.memory_stats(0)
            print(figures["allocated_bytes.all.current"], figures["segment.large_pool.current"], figures["max_split_size"])
            print(gpumem.allocator.stats().all.allocated_bytes.current, gpumem.allocator.serves_torch)
            print(torch.cuda.MemPool.__module__)
            """.replace("\n            ", "\n"),
            "('gpumem_torch_alloc', 'gpumem_torch_free') 8 True\n3145728 1 -1\n3145728 True\ngpumem._torch_pools\n",
        )

    def test_once_the_gpu_is_used_it_is_too_late(self):
        for text, why in (
            ("import torch; torch.cuda.init()\n", "PyTorch has used the GPU already"),
            (CHANGE, "PyTorch's allocator was replaced by this one already"),
            ("import torch; torch.cuda.memory.current = 1\n", "PyTorch's allocator was replaced by another one already"),
        ):
            out, _ = self.use(
                text
                + "before = vars(torch._C).copy()\n"
                + "import gpumem\ntry: torch.cuda.memory.change_current_allocator(gpumem.allocator)\n"
                + "except RuntimeError as e: print(e, before == vars(torch._C))"
            )
            self.assertTrue(why in out and out.endswith("True\n"), out)

    def test_pool_of_pytorchs_own_allocator(self):
        self.assert_prints(
            "import gpumem, torch; hooks = gpumem.allocator.allocator(); print(hooks.names, hooks is gpumem.allocator.allocator())\n"
            "print(torch.cuda.memory.get_allocator_backend(), gpumem.allocator.serves_torch)",
            "('gpumem_alloc', 'gpumem_free') True\nnative False\n",
        )

    def test_publish_says_once_that_it_publishes_by_itself(self):
        line = "gpumem: torch is on gpumem's allocator, which publishes by itself"
        publish = "gpumem.publish()\n"
        for text in (CHANGE + publish * 2, "import gpumem\n" + publish + CHANGE + "torch.cuda.init()\n" + publish):
            out, lines = self.use("import gpumem._torch\ngpumem._torch.DRIVER_FILES = ('/dev/null',)\n" + text + "torch.empty(1)")
            self.assertEqual((out, lines, self.recorded()), ("", [line], []))

    def test_tags_and_steps_are_those_of_blocks(self):
        out, lines = self.use(
            CHANGE
            + """
            gpumem.allocator.record_history()
            with gpumem.tag("weights"):
                torch.empty(3 << 20)
                with gpumem.allocator.scope("bias"):
                    torch.empty(1 << 20)
            for _ in range(30):
                gpumem.step()
            print(gpumem.allocator.peak_report())
            print(gpumem.allocator.leak_report(20))
            gpumem.allocator.snapshot("state.json")
            print(open("state.json").read().count("weights") > 0)
            gpumem.allocator.stop_history()
            try: gpumem.allocator.peak_report()
            except RuntimeError as error: print(error)
            """.replace("\n            ", "\n")
        )
        self.assertEqual(lines, [])
        peak, leaks = out.split("held for 20 or more of 30 steps:")
        self.assertTrue("3.0 MiB       1 block  weights" in peak and "1.0 MiB       1 block  bias" in peak and "train.py:6)" in peak, out)
        self.assertTrue("weights" in leaks and "\nTrue\n" in leaks and "gpumem_peak_report: " in leaks, out)


@needs_library
class Others(Use):
    def test_cupy(self):
        self.assert_prints(
            """
            import cupy, gpumem
            cupy.cuda.set_allocator(gpumem.allocator.malloc)
            kept = cupy.empty(3 << 20)
            pool = cupy.get_default_memory_pool()
            print(pool.used_bytes(), pool.total_bytes() == pool.used_bytes() + pool.free_bytes(), pool.malloc == gpumem.allocator.malloc)
            try: cupy.empty(1 << 45)
            except cupy.cuda.memory.OutOfMemoryError as error: print(isinstance(error, cupy.cuda.runtime.CUDARuntimeError))
            del kept
            pool.free_all_blocks()
            pool.set_limit(fraction=0.5)
            print(pool.used_bytes(), pool.total_bytes(), pool.get_limit() >> 30)
            """,
            "3145728 True True\nTrue\n0 0 4\n",
        )

    def test_rmm(self):
        self.assert_prints(
            """
            import rmm, gpumem
            rmm.mr.set_current_device_resource(gpumem.allocator.rmm())
            pointer = rmm.current.allocate(3 << 20, rmm.Stream())
            print(gpumem.allocator.stats().all.allocated_bytes.current)
            rmm.current.deallocate(pointer, 3 << 20, rmm.Stream())
            print(gpumem.allocator.stats().all.allocated_bytes.current, gpumem.allocator.empty_cache() > 0)
            try: rmm.current.allocate(1 << 45, rmm.Stream())
            except MemoryError as error: print(type(error).__name__)
            """,
            "3145728\n0 True\nMemoryError\n",
        )


@needs_library
class Run(Use):
    def test_torch_and_cupy_are_on_it_and_do_not_publish(self):
        text = """
            import torch, cupy, sys
            torch.empty(3 << 20)
            cupy.get_default_memory_pool().used_bytes()
            print(torch.cuda.memory_stats(0)["allocated_bytes.all.current"], "gpumem" in sys.modules)
            import gpumem
            gpumem.publish()
            print(gpumem.allocator.stats().all.allocated_bytes.current, gpumem.allocator.malloc == cupy.get_default_memory_pool().malloc)
            """
        out, lines = self.use(text, [BOOTSTRAP, PYTHON, STANDIN], GPUMEM_RUN="allocator")
        self.assertEqual((out, self.recorded()), ("3145728 False\n3145728 True\n", []))
        self.assertEqual(lines, ["gpumem: torch is on gpumem's allocator, which publishes by itself"])

    def test_program_that_imports_the_package_first(self):
        text = "import gpumem, torch, sys; print(gpumem.allocator.serves_torch, '_gpumem_run' in sys.modules)"
        out, lines = self.use(text, [BOOTSTRAP, PYTHON, STANDIN], GPUMEM_RUN="allocator")
        self.assertEqual((out, lines), ("True False\n", []))

    def test_torch_without_cuda_stays_as_it_is(self):
        text = "import torch; print(torch.cuda.memory.current)"
        out, lines = self.use(text, [BOOTSTRAP, STANDIN], GPUMEM_RUN="allocator", STANDIN_TORCH="cpu")
        self.assertEqual((out, lines), ("None\n", []))


if __name__ == "__main__":
    unittest.main()
