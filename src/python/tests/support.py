"""Runs programs in this Python, with a stand-in for torch and one for the publisher process, and returns what the latter was sent."""

import glob
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.dirname(HERE)
BOOTSTRAP = os.path.join(PYTHON, "bootstrap")
STANDIN = os.path.join(HERE, "standin")
PATIENCE_S = 30
# Programs wait with it until something was recorded. A machine without a GPU is nothing to complain of here.
BEGIN = """
import glob, os, sys, time
def wait_for(word, count=1):
    until = time.monotonic() + 20
    while time.monotonic() < until:
        files = glob.glob(os.path.join(os.environ["RECORD_DIR"], "*.jsonl"))
        texts = []
        for file in files:
            with open(file) as record:
                texts.append(record.read())
        if "".join(texts).count('"type": "%s"' % word) >= count:
            return
        time.sleep(0.01)
    sys.exit("never recorded: " + word)
"""
DRIVER = "import gpumem._torch\ngpumem._torch.DRIVER_FILES = (os.devnull,)\n"
START = "import gpumem; gpumem.publish()\n"


def start(text):
    """Returns a program that publishes."""
    return START + textwrap.dedent(text)


class Ran:
    """A program that has ended, and what was recorded of it."""

    def __init__(self, code, stdout, stderr, records):
        self.code, self.stdout, self.stderr, self.records = code, stdout, stderr, records

    @property
    def messages(self):
        """The messages of the only process that published."""
        assert len(self.records) == 1, f"{len(self.records)} published: {self.stderr}"
        return self.records[0]

    def types(self):
        return [message["type"] for message in self.messages]

    def of(self, kind):
        return [message for message in self.messages if message["type"] == kind]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        # Programs on gpumem's allocator publish by themselves, on tmpfs only.
        channels = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(channels.cleanup)
        self.channels = channels.name
        self.records = os.path.join(self.folder, "records")
        os.mkdir(self.records)
        self.recorder = self.put("recorder", f'#!/bin/sh\nexec "{sys.executable}" -S "{HERE}/recorder.py"\n')
        os.chmod(self.recorder, 0o755)

    def put(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def environment(self, path, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUMEM", "PYTHON", "RANK", "WORLD"))}
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "RECORD_DIR": self.records,
            "GPUMEM_DIR": self.channels,
            "GPUMEM_TUI": self.recorder,
            "GPUMEM_INTERVAL": "0.1",
            **more,
        }

    def run_program(self, text, path=None, options=(), begin=BEGIN + DRIVER, **more):
        """Runs a program that uses the package."""
        script = self.put("train.py", begin + textwrap.dedent(text))
        path = [PYTHON, STANDIN] if path is None else path
        return self.run_command([sys.executable, *options, script], path, **more)

    def run_unprepared(self, text, path=(), **more):
        """Runs a program that knows nothing of the package, as `gpumem-tui run` does."""
        return self.run_program(text, [BOOTSTRAP, *path, STANDIN], begin=BEGIN, **more)

    def run_command(self, command, path, **more):
        for file in os.listdir(self.records):
            os.remove(os.path.join(self.records, file))
        ran = subprocess.run(
            command,
            env=self.environment(path, **more),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=PATIENCE_S,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr, self.recorded())

    def recorded(self):
        """Returns what every publisher process was sent, once all have ended."""
        until = time.monotonic() + PATIENCE_S
        while True:
            files = sorted(glob.glob(os.path.join(self.records, "*.jsonl")))
            texts = [open_and_read(file) for file in files]
            if all(text.endswith('{"type": "end"}\n') for text in texts) or time.monotonic() > until:
                return [[json.loads(line) for line in text.splitlines()[:-1]] for text in texts]
            time.sleep(0.01)

    def assert_well(self, ran):
        self.assertEqual((ran.code, ran.stderr), (0, ""))


def open_and_read(path):
    with open(path) as file:
        return file.read()
