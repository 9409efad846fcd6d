"""Block maps and histories: what is read, what is skipped and why, and what a reading costs."""

import os
import sys
import textwrap
import types
import unittest
import unittest.mock

from support import Case, PYTHON, start

sys.path.insert(0, PYTHON)

from gpumem import _history, _users  # noqa: E402

WATCHED = "import torch; torch.empty(1); wait_for('stats', 2)"
# The first map may come after the second figures.
MAPPED = "import torch; torch.empty(1); wait_for('map')"


class Watched(Case):
    """Somebody looks at the block map of the program."""

    def watched(self, text=WATCHED, **more):
        ran = self.run_program(start(text), RECORDER="watch", **more)
        self.assert_well(ran)
        return ran

    def test_history_of_the_program_is_sent(self):
        for kind in ("2.6", "2.11"):
            ran = self.watched(MAPPED, STANDIN_TORCH=kind, STANDIN_HISTORY="7")
            first = ran.of("map")[0]
            self.assertEqual([entry["addr"] for entry in first["map"]["device_traces"][0]], [4096 * n for n in range(7)] + [0])
            self.assertEqual((first["events_skipped"], first["map"]["device_traces"][1]), ("", []))

    def test_long_history_is_not_copied(self):
        ran = self.watched(MAPPED, STANDIN_HISTORY="7", STANDIN_BLOCKS="30000")
        found = ran.of("map")[0]
        self.assertEqual(found["map"]["device_traces"], [])
        self.assertEqual(found["events_skipped"], "the history has up to 18,000 entries; at most 10,000 are read")

    def test_older_versions_have_no_map_then(self):
        ran = self.watched(STANDIN_TORCH="2.6", STANDIN_HISTORY="7", STANDIN_BLOCKS="30000")
        self.assertEqual(ran.of("map"), [])
        self.assertIn("which a snapshot of this torch would all copy", ran.of("map_skipped")[0]["reason"])

    def test_compiler_is_imported_only_on_request(self):
        ran = self.watched(STANDIN_HISTORY="7", STANDIN_COMPILER="1")
        self.assertEqual(ran.of("map"), [])
        self.assertIn("would import its compiler", ran.of("map_skipped")[0]["reason"])
        for kept in ({"STANDIN_HISTORY": "7"}, {}):
            ran = self.watched(MAPPED, STANDIN_COMPILER="1", GPUMEM_HISTORY="500", **kept)
            self.assertGreater(len(ran.of("map")[0]["map"]["device_traces"][0]), 0)

    def test_program_imports_it_in_its_own_thread(self):
        imports = """
            import threading
            class Finder:
                def find_spec(self, name, path=None, target=None):
                    if name == "torch._inductor": print(threading.current_thread().name)
            sys.meta_path.insert(0, Finder())
            """
        ran = self.watched(textwrap.dedent(imports) + WATCHED, STANDIN_COMPILER="1", GPUMEM_HISTORY="500")
        self.assertEqual(ran.stdout, "MainThread\n")

    def test_without_it_there_are_events_and_no_lines(self):
        text = MAPPED + "; print(torch.cuda.memory.begun)"
        ran = self.watched(text, STANDIN_COMPILER="broken", GPUMEM_HISTORY="500")
        self.assertEqual(ran.stdout, "[[None, 'python', 500]]\n")
        self.assertGreater(len(ran.of("map")[0]["map"]["device_traces"][0]), 0)

    def test_unfinished_import_is_waited_for(self):
        text = """
            import torch, types
            half = types.ModuleType("torch._inductor")
            half.__spec__ = types.SimpleNamespace(_initializing=True)
            sys.modules["torch._inductor"] = half
            torch.empty(1)
            wait_for("map_skipped")
            half.__spec__._initializing = False
            wait_for("map")
            """
        self.watched(text, STANDIN_HISTORY="7", STANDIN_COMPILER="1")

    def test_program_may_have_imported_it(self):
        text = "import torch, types; sys.modules['torch._inductor'] = types; " + MAPPED
        self.assertGreater(len(self.watched(text, STANDIN_HISTORY="7", STANDIN_COMPILER="1").of("map")), 0)

    def test_too_many_blocks(self):
        ran = self.watched(STANDIN_BLOCKS="300000")
        self.assertEqual(ran.of("map"), [])
        self.assertIn("at most 200,000", ran.of("map_skipped")[0]["reason"])

    def test_allocator_without_a_map(self):
        text = """
            import torch
            def fails(include_traces=True): raise RuntimeError("cudaMallocAsync does not yet support snapshot")
            torch.cuda.memory_snapshot = fails
            torch.empty(1)
            wait_for("map_skipped")
            wait_for("stats", 2)
            """
        self.assertIn("cudaMallocAsync does not yet", self.watched(text).of("map_skipped")[0]["reason"])

    def test_failing_thread_does_not_wait_for_the_compiler(self):
        text = """
            import torch
            torch.empty(1)
            wait_for("stats")
            del sys.modules["torch._inductor"]
            try: torch.empty(1 << 40)
            except torch.OutOfMemoryError: pass
            """
        ran = self.run_program(start(text), GPUMEM_HISTORY="500", STANDIN_COMPILER="1")
        self.assert_well(ran)
        self.assertIn("hold up the failing thread", ran.of("map_skipped")[0]["reason"])


class Wanted(Case):
    """The program, or who started it, asks for a history."""

    def test_history_is_begun_once(self):
        text = "gpumem.publish(history=300)\nimport torch; torch.empty(1); wait_for('stats'); print(torch.cuda.memory.begun)"
        ran = self.run_program(start(text), GPUMEM_HISTORY="500")
        self.assert_well(ran)
        self.assertEqual(ran.stdout, "[['alloc', 'python', 300]]\n")

    def test_history_of_the_program_stays(self):
        text = "import torch; torch.empty(1); wait_for('stats'); print(torch.cuda.memory.begun)"
        ran = self.run_program(start(text), GPUMEM_HISTORY="500", STANDIN_HISTORY="7")
        self.assertEqual(ran.stdout, "[]\n")

    def test_first_end_of_a_tag_has_the_map_read(self):
        text = """
            import torch
            torch.empty(1)
            wait_for("stats")
            def batch():
                with gpumem.tag("model"):
                    torch.cuda.memory.add("alloc", 77)
            batch()
            wait_for("map")
            batch()
            wait_for("stats", 5)
            """
        ran = self.run_program(start(text), GPUMEM_HISTORY="500")
        self.assert_well(ran)
        (found,) = ran.of("map")
        (entry,) = [entry for entry in found["map"]["device_traces"][0] if entry["addr"] == 77]
        begin, end = [mark["at"] for mark in ran.of("mark")][:2]
        self.assertTrue(begin <= entry["time_us"] <= end, (begin, entry, end))
        self.assertEqual([mark["tag"] for mark in ran.of("mark")], ["model", "", "model", ""])

    def test_numbers(self):
        for argument, variable, entries in (
            (None, None, 0),
            (None, "500", 500),
            (300, "500", 300),
            (0, "500", 0),
            (None, "0", 0),
            (None, "", 0),
        ):
            with unittest.mock.patch.dict(os.environ, {"GPUMEM_HISTORY": variable} if variable is not None else {}):
                self.assertEqual(_history.wanted(argument), (entries, None), (argument, variable))
        for bad in (99, 10_001, -5, True, "many", "9" * 5000, 1e3):
            entries, complaint = _history.wanted(bad)
            self.assertTrue(entries == 0 and complaint, bad)


class Reading(unittest.TestCase):
    """What is sent of a history from one map to the next."""

    def torch(self, *traces):
        snapshot = {"segments": [], "device_traces": [[{"time_us": time} for time in trace] for trace in traces]}
        memory = types.SimpleNamespace(_snapshot=lambda: snapshot)
        cuda = types.SimpleNamespace(memory=memory, memory_snapshot=lambda include_traces=True: [])
        return types.SimpleNamespace(cuda=cuda, _C=types.SimpleNamespace(_cuda_isHistoryEnabled=lambda: True))

    def test_entries_from_the_last_one_on_are_sent(self):
        history = _history.History(0)
        for traces, sent in (
            (([1, 2, 3], [9]), ([1, 2, 3], [9])),
            # The last entry is sent again, for the publisher to see that nothing was lost.
            (([1, 2, 3, 3, 4], [9]), ([3, 3, 4], [9])),
            (([3, 4, 5], [10]), ([4, 5], [10])),
            # All that was sent is lost.
            (([7, 8], [10]), ([7, 8], [10])),
            (([], []), ([], [])),
        ):
            found, why = history.block_map(self.torch(*traces), [{}])
            times = tuple([entry["time_us"] for entry in trace] for trace in found["device_traces"])
            self.assertEqual((times, why), (sent, ""))

    def test_own_history_is_as_long_as_it_was_begun(self):
        history = _history.History(200)
        torch = self.torch([1] * 200)
        torch._C._cuda_isHistoryEnabled = lambda: False
        torch.cuda.memory._record_memory_history = lambda **arguments: None
        self.assertIsNone(history.begin(torch))
        torch._C._cuda_isHistoryEnabled = lambda: True
        # A program that has run for a while.
        figures = [{"allocation.all.allocated": 1 << 40}]
        self.assertEqual(history.block_map(torch, figures)[1], "")
        # The program has begun one of its own.
        self.assertEqual(history.block_map(self.torch([1] * 201), figures)[1], "")
        self.assertIn("at most 10,000 are read", history.block_map(torch, figures)[1])

    def test_torch_without_such_a_history(self):
        history = _history.History(200)
        torch = types.SimpleNamespace(_C=types.SimpleNamespace(), cuda=types.SimpleNamespace(memory=types.SimpleNamespace()))
        self.assertIn("this torch records no history", history.begin(torch))


class Users(unittest.TestCase):
    def distributed(self, *backends):
        world = types.SimpleNamespace(pg_map={number: (backend, None) for number, backend in enumerate(backends)})
        c10d = types.SimpleNamespace(_world=world)
        return types.SimpleNamespace(is_initialized=lambda: bool(backends), distributed_c10d=c10d)

    def test_names(self):
        two = self.distributed("nccl", "cpu:gloo,cuda:nccl", "gloo")
        for modules, pools, said in (
            ({}, 0, ""),
            ({"torch.distributed": self.distributed()}, 0, ""),
            ({"torch.distributed": two, "cupy": None}, 3, "NCCL (2 groups), CUDA graphs (3 pools), CuPy"),
            ({"torch.distributed": self.distributed("nccl")}, 1, "NCCL (1 group), CUDA graphs (1 pool)"),
            # A build without it, and one with other names.
            ({"torch.distributed": types.SimpleNamespace()}, 0, ""),
            ({"torch.distributed": types.SimpleNamespace(is_initialized=lambda: True)}, 0, ""),
        ):
            with unittest.mock.patch.dict(sys.modules, modules):
                self.assertEqual(_users.names(None, pools), said)


if __name__ == "__main__":
    unittest.main()
