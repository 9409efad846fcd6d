"""Stands in for the publisher process: writes what it is sent to a file of RECORD_DIR, one line of JSON a message.

RECORDER is what it does: watch (somebody looks at the block map), error (it cannot publish), die (after the first message), deaf (it
never reads). The last line is {"type": "end"}.
"""

import json
import os
import pickle
import sys
import time

what = os.environ.get("RECORDER", "")
if what == "deaf":
    time.sleep(60)
if what == "watch":
    print('{"watched":true}', flush=True)
if what == "error":
    print('{"error":"no room in the folder of channels"}', flush=True)

with open(os.path.join(os.environ["RECORD_DIR"], f"{os.getpid()}.jsonl"), "w") as record:
    stream = sys.stdin.buffer
    for line in stream:
        message = json.loads(line)
        if "bytes" in message:
            message["map"] = pickle.loads(stream.read(message["bytes"]))
        record.write(json.dumps(message) + "\n")
        record.flush()
        if what == "die":
            break
    record.write('{"type": "end"}\n')
