"""Names, pace and commands, as values."""

import math
import os
import sys
import unittest

from support import PYTHON

sys.path.insert(0, PYTHON)

from gpumem import __main__ as main  # noqa: E402
from gpumem import _binary, _names, _pace, _torch  # noqa: E402


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


class Command(unittest.TestCase):
    def test_run_keeps_the_interpreter(self):
        options = main.command("/bin/tui", ["run"])[4:]
        expected = ["/bin/tui", "run", "--", sys.executable, *options, "train.py", "--lr", "1"]
        self.assertEqual(main.command("/bin/tui", ["run", "train.py", "--lr", "1"]), expected)
        self.assertEqual(main.command("/bin/tui", ["run", "--", "train.py", "--lr", "1"]), expected)

    def test_other_arguments_are_those_of_the_program(self):
        self.assertEqual(main.command("/bin/tui", ["--once"]), ["/bin/tui", "--once"])
        self.assertEqual(main.command("/bin/tui", []), ["/bin/tui"])

    def test_named_program_is_the_only_choice(self):
        before = os.environ.get("GPUMEM_TUI")
        try:
            os.environ["GPUMEM_TUI"] = "/no/program"
            self.assertIsNone(_binary.find())
            os.environ["GPUMEM_TUI"] = sys.executable
            self.assertEqual(_binary.find(), sys.executable)
        finally:
            os.environ.pop("GPUMEM_TUI")
            if before is not None:
                os.environ["GPUMEM_TUI"] = before


if __name__ == "__main__":
    unittest.main()
