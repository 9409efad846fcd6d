"""Programs that know nothing of the package, as `gpumem-tui run` starts them."""

import os
import sys
import unittest

from support import BOOTSTRAP, PYTHON, Case

TRAINS = "import torch; torch.empty(1); wait_for('stats')\n"


class Run(Case):
    def test_program_publishes_and_sees_nothing_of_it(self):
        ran = self.run_unprepared(
            TRAINS + "print(sys.argv, os.path.basename(__file__), 'gpumem' in sys.modules, [type(f).__name__ for f in sys.meta_path])"
        )
        self.assert_well(ran)
        self.assertNotIn("'Finder'", ran.stdout)
        self.assertIn("train.py False", ran.stdout)
        self.assertEqual(ran.types()[-1], "bye")

    def test_children_publish(self):
        text = """
            import multiprocessing, subprocess, torch
            def child():
                torch.empty(1)
                wait_for("hello", 2)
            if __name__ == "__main__":
                subprocess.check_call([sys.executable, "-c", "import torch, time; torch.empty(1); time.sleep(0.5)"])
                spawned = multiprocessing.get_context("spawn").Process(target=child)
                spawned.start()
                spawned.join()
                print(spawned.exitcode)
            """
        ran = self.run_unprepared(text, RANK="1", WORLD_SIZE="2")
        self.assert_well(ran)
        self.assertEqual([(r[0]["program"], r[0]["rank"]) for r in ran.records], [("python -c", 1), ("train.py", 1)])

    def test_nothing_happens_without_torch(self):
        ran = self.run_unprepared("print([name for name in sys.modules if 'gpumem' in name])")
        self.assert_well(ran)
        self.assertEqual((ran.stdout, ran.records), ("['_gpumem_run_hook']\n", []))

    def test_package_of_the_program_is_used_once(self):
        for order in ("import gpumem\n" + TRAINS, TRAINS + "import gpumem\n"):
            with self.subTest(order):
                self.setUp()
                ran = self.run_unprepared(order + "gpumem.publish(); gpumem.step(); wait_for('stats', 2)", [PYTHON])
                self.assert_well(ran)
                self.assertEqual([(mark["name"], mark["number"]) for mark in ran.of("mark")], [("step", 1)])

    def test_module_of_that_name_is_the_programs(self):
        self.put("gpumem.py", "mine = 1")
        ran = self.run_unprepared("import gpumem\n" + TRAINS + "print(gpumem.mine)")
        self.assert_well(ran)
        self.assertEqual((ran.stdout, ran.types()[-1]), ("1\n", "bye"))

    def test_other_finders_of_all_modules(self):
        text = """
            class Asks:
                def find_spec(self, name, path=None, target=None):
                    others = (f.find_spec(name, path, target) for f in sys.meta_path if f is not self)
                    return next(filter(None, others), None)
            sys.meta_path.insert(0, Asks())
            import importlib.util
            assert importlib.util.find_spec("torch")
            """
        ran = self.run_unprepared(text.replace("\n            ", "\n") + TRAINS)
        self.assert_well(ran)
        self.assertEqual(ran.types()[-1], "bye")

    def test_torch_that_fails_to_import(self):
        self.put("broken/torch.py", "raise ImportError('libcudart is missing')")
        ran = self.run_unprepared("try: import torch\nexcept ImportError as e: print(e)", [os.path.join(self.folder, "broken")])
        self.assert_well(ran)
        self.assertEqual((ran.stdout, ran.records), ("libcudart is missing\n", []))

    def test_pythons_that_ignore_the_path(self):
        for option in ("-I", "-E", "-S"):
            ran = self.run_command([sys.executable, option, "-c", "import sys; print('_gpumem_run_hook' in sys.modules)"], [BOOTSTRAP])
            self.assert_well(ran)
            self.assertEqual(ran.stdout, "False\n")


class Sitecustomize(Case):
    def site(self, text, also=""):
        first = os.path.dirname(self.put("first/sitecustomize.py", text))
        second = os.path.dirname(self.put("second/sitecustomize.py", also))
        return [first, second]

    def test_hidden_one_is_run_once(self):
        path = self.site("import sys; sys.ran = getattr(sys, 'ran', 0) + 1")
        ran = self.run_unprepared(TRAINS + "import sitecustomize; print(sys.ran, os.path.dirname(sitecustomize.__file__)[-5:])", path)
        self.assert_well(ran)
        self.assertEqual((ran.stdout, ran.types()[-1]), ("1 first\n", "bye"))

    def test_one_that_runs_the_next(self):
        # As OpenTelemetry's does.
        text = """
import os, sys
here = os.path.dirname(__file__)
sys.path.remove(here)
del sys.modules["sitecustomize"]
import sitecustomize
sys.path.insert(0, here)
sys.ran = ["first"] + getattr(sys, "ran", [])
"""
        ran = self.run_unprepared(TRAINS + "print(sys.ran)", self.site(text, "import sys; sys.ran = ['second']"))
        self.assert_well(ran)
        self.assertEqual((ran.stdout, ran.types()[-1]), ("['first', 'second']\n", "bye"))

    def test_failing_one_is_reported_as_ever(self):
        path = self.site("raise ValueError('of the site')")
        ran = self.run_unprepared(TRAINS, path)
        self.assertEqual((ran.code, ran.types()[-1]), (0, "bye"))
        self.assertIn("ValueError: of the site", ran.stderr)
        self.assertNotIn("gpumem:", ran.stderr)

    def test_start_of_python_stays_fast(self):
        slow = ("typing", "re", "json", "subprocess", "importlib.util", "socket")
        text = f"import sys; print([name for name in {slow} if name in sys.modules])"
        plain, ours = (self.run_command([sys.executable, "-c", text], path) for path in ([], [BOOTSTRAP]))
        # Each of these modules takes longer than a millisecond to import.
        self.assertEqual(ours.stdout, plain.stdout)


if __name__ == "__main__":
    unittest.main()
