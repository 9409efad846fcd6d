"""Requests that fail, and block maps that would cost too much."""

import unittest

from support import Case, start

FAILS = """
def forward():
    try:
        torch.empty(1 << 50)
    except torch.OutOfMemoryError as error:
        print(error)
"""


class OutOfMemory(Case):
    def test_report_names_the_line_and_has_stats_and_map(self):
        ran = self.run_program(start("import torch\n" + FAILS + "torch.empty(1)\nwait_for('stats')\nforward()"))
        self.assert_well(ran)
        self.assertEqual(ran.stdout, f"CUDA out of memory. Tried to allocate {1 << 50} bytes\n")
        types = ran.types()
        at = types.index("oom")
        self.assertEqual(types[at : at + 3], ["oom", "stats", "map"])
        oom = ran.messages[at]
        self.assertEqual((oom["device"], oom["requested"], oom["total"]), (0, 1 << 50, 85_029_158_912))
        self.assertRegex(oom["where"], r"^train.py:\d+ in forward$")
        self.assertRegex(oom["message"], r"^tried to allocate 1,125,\S+ bytes with .* free; called by train.py:\d+ in <module>$")

    def test_thread_without_python_shows_the_main_thread(self):
        ran = self.run_program(
            start("""
            import torch
            torch.empty(1)
            wait_for("stats")
            print(gpumem._oom.lines(None, os.path.dirname(torch.__file__)))
            """)
        )
        self.assert_well(ran)
        self.assertRegex(ran.stdout, r"^\['train.py:\d+ in <module> \(main thread\)'\]$")

    def test_a_search_for_the_largest_batch_takes_one_map_a_second(self):
        ran = self.run_program(
            start("import torch\n" + FAILS + "torch.empty(1)\nwait_for('stats')\nfor _ in range(20): forward()"),
            GPUMEM_INTERVAL="60",
        )
        self.assert_well(ran)
        types = ran.types()
        self.assertEqual((types.count("oom"), types.count("map"), types.count("map_skipped")), (20, 1, 19))

    def test_a_publisher_that_does_not_read_holds_it_up_shortly(self):
        ran = self.run_program(
            start(
                "import torch, time\n"
                + FAILS
                + """
torch.empty(1)
while not torch._C.observers: time.sleep(0.01)
time.sleep(0.2)
begin = time.monotonic()
forward()
print(time.monotonic() - begin < 1)
"""
            ),
            RECORDER="deaf",
            STANDIN_BLOCKS="20000",
        )
        self.assertEqual((ran.code, ran.stdout.splitlines()[1]), (0, "True"))

    def test_large_allocators_have_no_map(self):
        ran = self.run_program(
            start("import torch\n" + FAILS + "torch.empty(1)\nwait_for('stats')\nforward()"), STANDIN_BLOCKS="50000"
        )
        self.assert_well(ran)
        types = ran.types()
        at = types.index("oom")
        self.assertEqual(types[at : at + 3], ["oom", "stats", "map_skipped"])
        self.assertIn("hold up the failing thread", ran.messages[at + 2]["reason"])


if __name__ == "__main__":
    unittest.main()
