"""Forks, workers, exec, threads, and the ends that a process can have."""

import signal
import unittest

from support import Case, start


class Processes(Case):
    def test_fork_leaves_the_connection_to_the_parent(self):
        ran = self.run_program(
            start("""
            import torch, time
            torch.empty(1)
            wait_for("stats")
            before = len(os.listdir("/proc/self/fd"))
            if os.fork() == 0:
                gpumem.mark("lost")
                gpumem.publish()
                now = len(os.listdir("/proc/self/fd"))
                print(now < before, gpumem._publisher.chosen().reader(), flush=True)
                wait_for("end")  # although this process lives on
                os._exit(0)
            gpumem.mark("parent")
            gpumem.stop()
            print(os.waitstatus_to_exitcode(os.wait()[1]) if hasattr(os, "waitstatus_to_exitcode") else os.wait()[1])
            """),
            options=["-W", "ignore::DeprecationWarning"],
        )
        self.assert_well(ran)
        self.assertEqual(ran.stdout, "True None\n0\n")
        self.assertEqual([message["name"] for message in ran.of("mark")], ["parent"])

    def test_publisher_is_no_child(self):
        ran = self.run_program(
            start("""
            import torch
            torch.empty(1)
            wait_for("stats")
            try:
                print(os.wait())
            except ChildProcessError:
                print("no children")
            """)
        )
        self.assert_well(ran)
        self.assertEqual(ran.stdout, "no children\n")

    def test_fork_before_cuda_publishes_on_its_own(self):
        ran = self.run_program(
            start("""
            import torch
            child = os.fork()
            torch.empty(1)
            wait_for("stats", 2)
            print(os.getpid(), flush=True)
            if child:
                os.waitpid(child, 0)
            """)
        )
        self.assert_well(ran)
        pids = {record[0]["pid"] for record in ran.records}
        self.assertEqual(pids, set(map(int, ran.stdout.split())))
        self.assertEqual([record[-1]["type"] for record in ran.records], ["bye", "bye"])

    def test_workers_of_a_data_loader_do_not_publish(self):
        # Python 3.12 and newer warns of a fork beside a thread. torch has threads of its own then.
        ran = self.run_program(
            start("""
            import multiprocessing, torch
            context = multiprocessing.get_context("fork")
            def work(queue):
                torch.cuda.memory_stats(0)
                queue.put(os.getpid())
            torch.empty(1)
            wait_for("stats")
            queue = context.Queue()
            workers = [context.Process(target=work, args=(queue,)) for _ in range(4)]
            for worker in workers: worker.start()
            found = {queue.get() for _ in workers}
            for worker in workers: worker.join()
            print(len(found), {worker.exitcode for worker in workers})
            """),
            options=["-W", "ignore::DeprecationWarning"],
        )
        self.assert_well(ran)
        self.assertEqual(ran.stdout, "4 {0}\n")
        self.assertEqual(ran.types()[-1], "bye")

    def test_exec_ends_publishing(self):
        ran = self.run_program(
            start("""
            import torch
            torch.empty(1)
            wait_for("stats")
            os.execv("/bin/sh", ["sh", "-c", "echo other"])
            """)
        )
        self.assert_well(ran)
        self.assertEqual((ran.stdout, ran.types()[0]), ("other\n", "hello"))
        self.assertNotIn("bye", ran.types())

    def test_threads_mark_at_the_same_time(self):
        ran = self.run_program(
            start("""
            import threading, torch
            def work(number):
                for i in range(100):
                    gpumem.mark(f"{number}.{i}")
            starter = threading.Thread(target=torch.empty, args=(1,))
            starter.start(); starter.join()
            wait_for("stats")
            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            """)
        )
        self.assert_well(ran)
        names = [message["name"] for message in ran.of("mark")]
        self.assertEqual(len(names), 800)
        for number in range(8):
            own = [name for name in names if name.startswith(f"{number}.")]
            self.assertEqual(own, [f"{number}.{i}" for i in range(100)])

    def test_closed_standard_streams_are_not_taken(self):
        ran = self.run_program(
            start("""
            import torch, time
            for fd in (0, 1, 2): os.close(fd)
            torch.empty(1)
            wait_for("stats")
            for fd in (0, 1, 2):
                try: os.write(fd, b"not for the publisher")
                except OSError: pass
            time.sleep(0.2)
            """)
        )
        self.assertEqual((ran.code, ran.types()[-1]), (0, "bye"))

    def test_connection_closed_by_the_program(self):
        # As programs do that put themselves into the background. The number may be that of another file afterwards.
        ran = self.run_program(
            start("""
            import torch, time
            torch.empty(1)
            wait_for("stats")
            os.closerange(3, 64)
            files = [open("model.bin", "wb") for _ in range(8)]
            gpumem.mark("lost")
            wait_for("end")
            time.sleep(0.3)
            print([os.path.getsize("model.bin"), {os.fstat(file.fileno()).st_size for file in files}])
            """)
        )
        self.assertEqual((ran.code, ran.stdout), (0, "[0, {0}]\n"))
        self.assertEqual(
            ran.stderr, "gpumem: publishing has ended: the program has closed the connection to the publisher process\n"
        )


class Ends(Case):
    def end(self, text):
        return self.run_program(start("import torch\ntorch.empty(1)\nwait_for('stats')\n" + text))

    def test_orderly_ends_say_bye(self):
        for text, code in (("", 0), ("sys.exit(3)", 3), ("raise ValueError('mine')", 1)):
            with self.subTest(text):
                self.setUp()
                ran = self.end(text)
                self.assertEqual((ran.code, ran.types()[-1]), (code, "bye"))
                self.assertNotIn("gpumem", ran.stderr)

    def test_sudden_ends_end_the_publisher(self):
        for text, code in (("os._exit(4)", 4), ("os.kill(os.getpid(), 9)", -signal.SIGKILL), ("os.abort()", -signal.SIGABRT)):
            with self.subTest(text):
                self.setUp()
                ran = self.end(text)
                self.assertEqual((ran.code, ran.stderr), (code, ""))
                self.assertNotIn("bye", ran.types())

    def test_warnings_are_errors(self):
        ran = self.run_program(start("import torch; torch.empty(1); wait_for('stats')"), options=["-X", "dev", "-W", "error"])
        self.assert_well(ran)


class Publishers(Case):
    """The publisher process is missing, dies or does not read."""

    def check(self, ran, says):
        self.assertEqual((ran.code, ran.stdout), (0, "trained\n"))
        self.assertIn(says, ran.stderr)
        self.assertEqual(ran.stderr.count("\n"), 1)

    def train(self, wait="time.sleep(0.5)", **more):
        text = start(f"import torch, time\ntorch.empty(1)\n{wait}\nfor _ in range(300): gpumem.step()\nprint('trained')")
        return self.run_program(text, **more)

    def test_missing(self):
        self.check(self.train(GPUMEM_TUI="/no/program"), "gpumem-tui was not found")

    def test_not_a_program(self):
        path = self.put("notes", "text")
        import os

        os.chmod(path, 0o755)
        self.check(self.train(GPUMEM_TUI=path), "publishing has ended: the publisher process has ended")

    def test_dying(self):
        self.check(self.train("time.sleep(1)", RECORDER="die"), "the publisher process has ended")

    def test_dying_between_two_readings(self):
        # A mark is then written to nobody. A program with the default action for SIGPIPE lives on.
        wait = """
import signal
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
wait_for("end")
until = time.monotonic() + 1.5
while time.monotonic() < until: gpumem.mark("x")
"""
        self.check(self.train(wait, RECORDER="die", GPUMEM_INTERVAL="60"), "the publisher process has ended")

    def test_refusing(self):
        self.check(self.train("wait_for('end')", RECORDER="error"), "publishing has ended: no room in the folder of channels")

    def test_not_reading(self):
        text = """
            import torch, time
            torch.empty(1)
            longest = 0
            until = time.monotonic() + 4
            while time.monotonic() < until:
                begin = time.monotonic()
                gpumem.mark("x" * 120)
                longest = max(longest, time.monotonic() - begin)
                time.sleep(0.0005)
            print("trained")
            if longest > 1: sys.exit(f"a mark took {longest} s")
            """
        self.check(self.run_program(start(text), RECORDER="deaf"), "the publisher process does not read")


if __name__ == "__main__":
    unittest.main()
