"""What is published, and when."""

import json
import os
import unittest

from support import PYTHON, STANDIN, START, Case, start


class Publish(Case):
    def test_publish_may_be_called_at_any_time(self):
        calls = {
            "before torch is imported": start("import torch; torch.empty(1); wait_for('stats')"),
            "before CUDA is initialised": "import torch\n" + START + "torch.empty(1); wait_for('stats')",
            "afterwards": "import torch; torch.empty(1)\n" + START + "wait_for('stats')",
            "twice": START * 2 + "import torch\n" + START * 2 + "torch.empty(1)\n" + START * 2 + "wait_for('stats', 3)",
        }
        for when, text in calls.items():
            with self.subTest(when):
                self.setUp()
                ran = self.run_program(text)
                self.assert_well(ran)
                types = ran.types()
                self.assertEqual(types[:3] + types[-1:], ["hello", "device", "stats", "bye"])
                self.assertEqual(types.count("device"), 1)

    def test_hello_names_program_job_and_ranks(self):
        ran = self.run_program(
            start("import torch; torch.empty(1); wait_for('hello'); print(os.getpid(), '.'.join(map(str, sys.version_info[:3])))"),
            GPUMEM_JOB="run\t7",
            RANK="3",
            LOCAL_RANK="x",
        )
        pid, version = ran.stdout.split()
        self.assertEqual(
            ran.messages[0],
            {
                "type": "hello",
                "version": 1,
                "pid": int(pid),
                "program": "train.py",
                "job": "run 7",
                "rank": 3,
                "local_rank": None,
                "world_size": None,
                "torch": "2.11.0+cu130",
                "torch_folder": os.path.join(STANDIN, "torch"),
                "python": version,
            },
        )

    def test_figures_are_those_of_torch(self):
        ran = self.run_program(
            start("""
            import json, torch
            torch.empty(1)
            wait_for("map")
            print(json.dumps([torch.cuda.memory_stats(0), torch.cuda.memory_snapshot(include_traces=False), torch.cuda.asked]))
            """),
            RECORDER="watch",
        )
        self.assert_well(ran)
        stats, segments, asked = json.loads(ran.stdout)
        self.assertEqual(ran.of("stats")[0]["stats"], stats)
        self.assertEqual(ran.of("map")[0]["map"], {"segments": segments, "device_traces": []})
        self.assertGreater(len(segments), 50)
        # Asking for the properties of the other device could open a context on it.
        self.assertEqual(set(asked), {0})
        device = ran.of("device")[0]
        self.assertEqual(device["uuid"], "GPU-0b2c5a1e-7d43-4f0a-9c61-5e8f2a9b4d17")
        self.assertEqual((device["index"], device["total"], device["limit"]), (0, 85_029_158_912, None))

    def test_map_is_taken_only_while_watched(self):
        ran = self.run_program(start("import torch; torch.empty(1); wait_for('stats', 5)"))
        self.assertEqual(ran.of("map"), [])

    def test_nothing_starts_before_cuda(self):
        ran = self.run_program(start("import torch, threading, time; time.sleep(0.3); print(threading.active_count())"))
        self.assert_well(ran)
        self.assertEqual((ran.stdout, ran.records), ("1\n", []))

    def test_marks_steps_and_tags(self):
        ran = self.run_program(
            start("""
            import torch
            gpumem.mark("begin")
            torch.empty(1)
            wait_for("stats")
            gpumem.mark("load\\n")
            gpumem.step(); gpumem.step(); gpumem.step(40); gpumem.step()
            with gpumem.tag("forward"):
                with gpumem.tag("attention"):
                    pass
            """)
        )
        self.assert_well(ran)
        names = [" ".join(str(mark[key]) for key in ("name", "number") if key in mark) for mark in ran.of("mark")]
        self.assertEqual(
            names, ["begin", "load", "step 1", "step 2", "step 40", "step 41", "forward", "attention", "forward", "other"]
        )

    def test_stop_and_publish_again(self):
        ran = self.run_program(
            start("import torch; torch.empty(1); wait_for('stats'); gpumem.stop(); wait_for('end'); gpumem.publish(); wait_for('hello', 2)")
        )
        self.assert_well(ran)
        self.assertEqual([record[-1]["type"] for record in ran.records], ["bye", "bye"])

    def test_ten_thousand_blocks(self):
        ran = self.run_program(
            start("""
            import torch, threading
            torch.empty(1)
            wait_for("map", 2)
            print(gpumem._publisher.chosen().reader().map_cost)
            """),
            RECORDER="watch",
            STANDIN_BLOCKS="10000",
        )
        self.assert_well(ran)
        blocks = sum(len(segment["blocks"]) for segment in ran.of("map")[0]["map"]["segments"])
        self.assertEqual(blocks, 10_000)
        # Pickling them takes some milliseconds. Within half a second the cost stays below 2 %.
        self.assertLess(float(ran.stdout), 0.5)


class Nothing(Case):
    """Without torch or CUDA it says so once, and `gpumem-tui run` says nothing."""

    def test_without_torch(self):
        text = START * 3 + "gpumem.mark('x'); gpumem.step(); gpumem.stop()"
        ran = self.run_program(text, [PYTHON])
        self.assertEqual((ran.code, ran.records), (0, []))
        self.assertEqual(ran.stderr, "gpumem: torch is not installed, so there is nothing to publish\n")

    def test_torch_without_cuda(self):
        ran = self.run_program(start("import torch\n" + START * 2), STANDIN_TORCH="cpu")
        self.assertEqual((ran.code, ran.records), (0, []))
        self.assertEqual(ran.stderr, "gpumem: this torch was built without CUDA, so there is nothing to publish\n")
        ran = self.run_unprepared("import torch", STANDIN_TORCH="cpu")
        self.assert_well(ran)

    def test_machine_without_driver(self):
        text = START + "import torch; gpumem._torch.DRIVER_FILES = ('/dev/none',)\n" + START * 2
        ran = self.run_program(text)
        self.assertEqual(ran.stderr, "gpumem: there is no NVIDIA driver here, so there is nothing to publish\n")

    def test_wrong_interval_is_reported(self):
        for value in ("0", "nan", "soon", "61"):
            ran = self.run_program(start("import torch; torch.empty(1); wait_for('hello')"), GPUMEM_INTERVAL=value)
            self.assertIn("GPUMEM_INTERVAL must be from 0.1 to 60 seconds; 1 is used", ran.stderr)

    def test_replaced_allocator(self):
        ran = self.run_program(
            start("""
            import torch
            def fails(device): raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")
            torch.cuda.memory_stats = fails
            torch.empty = torch.cuda.init
            torch.empty()
            wait_for("end")
            """)
        )
        self.assertEqual(ran.code, 0)
        self.assertIn("publishing has ended: RuntimeError: CUDAPluggableAllocator does not", ran.stderr)
        self.assertEqual(ran.stderr.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
