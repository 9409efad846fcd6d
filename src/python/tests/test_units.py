"""Names, pace and commands, as values."""

import functools
import math
import os
import sys
import tempfile
import types
import unittest
import unittest.mock

from support import PYTHON

sys.path.insert(0, PYTHON)

from gpumem import __main__ as main  # noqa: E402
from gpumem import _binary, _names, _pace, _torch, _uuid  # noqa: E402


class Names(unittest.TestCase):
    def test_program(self):
        for argv, module, name in (
            (["/home/ml/train.py", "serve"], None, "train.py"),
            (["/usr/bin/vllm", "serve", "model"], None, "vllm serve"),
            (["/usr/bin/vllm", "--help"], None, "vllm"),
            (["/lib/torch/distributed/run.py"], "torch.distributed.run", "torch.distributed.run"),
            (["/lib/pkg/__main__.py"], "pkg.__main__", "pkg"),
            (["-c", "serve"], None, "python -c"),
            ([""], None, "python"),
            ([], None, "python"),
            (["a\x1b[31m\n\udcff.py"], None, "a [31m ?.py"),
            (["x" * 999], None, "x" * 120),
        ):
            self.assertEqual(_names.program(argv, module), name)

    def test_ranks(self):
        def rank(text):
            return _names.ranks({"RANK": text})["rank"]

        self.assertEqual([rank(text) for text in ("0", "12", "", "-1", "x", "1e3", "9" * 4000)], [0, 12] + [None] * 5)


class Pace(unittest.TestCase):
    def test_stats_slow_down_when_every_reading_is_slow(self):
        pace = _pace.Stats(1.0)
        self.assertEqual([pace.after(0.1) for _ in range(2)], [1.0, 1.0])
        self.assertAlmostEqual(pace.after(0.1), 200)
        # One quick reading is enough to know that the slow ones were not usual.
        self.assertEqual(pace.after(0.0001), 1.0)
        self.assertEqual(_pace.Stats(60.0).after(0.0), 60.0)

    def test_maps_take_two_percent_at_most(self):
        self.assertEqual((_pace.block_map(0.006), _pace.block_map(0.2)), (1.0, 10.0))

    def test_interval(self):
        self.assertEqual(_pace.interval("0.1"), (0.1, None))
        self.assertEqual(_pace.interval(None), (1.0, None))
        for text in ("0", "-1", "61", "inf", "nan", "soon", "0x10"):
            seconds, complaint = _pace.interval(text)
            self.assertTrue(seconds == 1.0 and complaint and not math.isnan(seconds), text)


class Costs(unittest.TestCase):
    def test_history_is_bounded_by_allocations(self):
        figures = {"allocation.all.allocated": 10, "allocation.all.freed": 4, "segment.all.allocated": 3, "segment.all.freed": 1}
        self.assertEqual(_torch.trace_entries_at_most(figures), 10 + 8 + 4)
        self.assertEqual(_torch.trace_entries_at_most({}), 0)

    def test_used_although_peaks_were_reset(self):
        self.assertFalse(_torch.used({"reserved_bytes.all.current": 0, "reserved_bytes.all.peak": 0}))
        self.assertTrue(_torch.used({"reserved_bytes.all.peak": 0, "reserved_bytes.all.allocated": 5}))


class Driver:
    """libcuda with one device. `uuids` are those of cuDeviceGetUuid and, in newer ones, cuDeviceGetUuid_v2."""

    def __init__(self, *uuids, fails=0):
        self.fails = fails
        for name, number in zip(("cuDeviceGetUuid", "cuDeviceGetUuid_v2"), uuids):
            setattr(self, name, functools.partial(self._fill, number))

    def cuDeviceGet(self, device, index):
        return self.fails

    def _fill(self, number, room, device):
        room.raw = bytes([number] * 16)
        return self.fails


class Uuid(unittest.TestCase):
    def of(self, driver, properties=None):
        with unittest.mock.patch("ctypes.CDLL", return_value=driver):
            return _uuid.of(0, properties)

    def test_gpu_and_mig_device(self):
        one, two = "01010101-0101-0101-0101-010101010101", "02020202-0202-0202-0202-020202020202"
        self.assertEqual(self.of(Driver(1, 1)), "GPU-" + one)
        self.assertEqual(self.of(Driver(1)), "GPU-" + one)
        # Of a MIG device the older function returns the UUID of its GPU.
        self.assertEqual(self.of(Driver(1, 2)), "MIG-" + two)

    def test_torch_is_asked_when_the_driver_fails(self):
        properties = types.SimpleNamespace(uuid="abc")
        self.assertEqual(self.of(Driver(1, 1, fails=3), properties), "GPU-abc")
        self.assertIsNone(self.of(Driver(1, 1, fails=3), types.SimpleNamespace()))
        with unittest.mock.patch("ctypes.CDLL", side_effect=OSError("not loaded")):
            self.assertEqual(_uuid.of(0, properties), "GPU-abc")


class Command(unittest.TestCase):
    def test_run_keeps_the_interpreter(self):
        options = main.command("/bin/tui", ["run"])[4:]
        expected = ["/bin/tui", "run", "--", sys.executable, *options, "train.py", "--lr", "1"]
        self.assertEqual(main.command("/bin/tui", ["run", "train.py", "--lr", "1"]), expected)
        self.assertEqual(main.command("/bin/tui", ["run", "--", "train.py", "--lr", "1"]), expected)

    def test_other_arguments_are_those_of_the_program(self):
        self.assertEqual(main.command("/bin/tui", ["--once"]), ["/bin/tui", "--once"])
        self.assertEqual(main.command("/bin/tui", []), ["/bin/tui"])

    def test_run_passes_options_of_the_allocator_on(self):
        for arguments, ours in (
            (["--allocator", "train.py", "--allocator"], ["--allocator"]),
            (["--allocator", "--library", "a.so", "--", "train.py", "--allocator"], ["--allocator", "--library", "a.so"]),
            (["--library=a.so", "--allocator", "train.py", "--allocator"], ["--library=a.so", "--allocator"]),
        ):
            self.assertEqual(main.split(arguments), (ours, ["train.py", "--allocator"]))
            self.assertEqual(main.command("/bin/tui", ["run", *arguments])[: 3 + len(ours)], ["/bin/tui", "run", *ours, "--"])

    def test_run_refuses_what_it_cannot_do(self):
        for arguments, why in (
            ([], "name a script"),
            (["--allocator"], "name a script"),
            (["--library"], "name a script"),
            (["--"], "name a script"),
            (["-m"], "name a script"),
            (["-E", "train.py"], "options of Python go before -m gpumem"),
            (["--alocator", "train.py"], "options of Python go before -m gpumem"),
        ):
            self.assertIn(why, main.wrong(arguments) or "", arguments)
        for arguments in (["train.py"], ["-m", "torch.distributed.run"], ["-c", "1"], ["--allocator", "train.py"]):
            self.assertIsNone(main.wrong(arguments))
        with unittest.mock.patch("sys.flags", types.SimpleNamespace(ignore_environment=1, no_site=0)):
            self.assertIn("keep scripts from the allocator", main.wrong(["--allocator", "train.py"]) or "")
            self.assertIsNone(main.wrong(["train.py"]))

    def test_script_on_the_path_is_not_the_program(self):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, {"PATH": folder, "GPUMEM_TUI": ""}):
            path = os.path.join(folder, "gpumem-tui")
            for content, found in ((b"#!python", None), (b"\x7fELF", path)):
                with open(path, "wb") as file:
                    file.write(content)
                os.chmod(path, 0o755)
                self.assertEqual(_binary.find(), found)

    def test_named_program_is_the_only_choice(self):
        for path, found in (("/no/program", None), (sys.executable, sys.executable)):
            with unittest.mock.patch.dict(os.environ, {"GPUMEM_TUI": path}):
                self.assertEqual(_binary.find(), found)

    def test_library_is_named_or_in_the_package_or_near_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            package, program = os.path.join(folder, "gpumem"), os.path.join(folder, "target/release/gpumem-tui")
            places = [
                os.path.join(package, "lib/libgpumem_alloc.so"),
                os.path.join(folder, "target/release/libgpumem_alloc.so"),
                os.path.join(folder, "target/lib/libgpumem_alloc.so"),
                os.path.join(folder, "target/embed/libgpumem_alloc.so"),
            ]
            for path in [program, *places]:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w"):
                    pass
            os.chmod(program, 0o755)
            with unittest.mock.patch.dict(os.environ, {"GPUMEM_TUI": program, "GPUMEM_LIBRARY": "/named.so"}):
                self.assertEqual(_binary.find_library(), "/named.so")
                os.environ["GPUMEM_LIBRARY"] = ""
                with unittest.mock.patch.object(_binary, "__file__", os.path.join(package, "_binary.py")):
                    for path in places:
                        self.assertEqual(_binary.find_library(), os.path.realpath(path))
                        os.remove(path)
                    self.assertRaisesRegex(RuntimeError, "set GPUMEM_LIBRARY", _binary.find_library)


if __name__ == "__main__":
    unittest.main()
