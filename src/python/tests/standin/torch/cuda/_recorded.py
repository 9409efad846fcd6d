"""Segments and blocks that torch 2.11 recorded on an H100 while it trained a GPT, and the stats that belong to them.

segments.json.gz has the segments of src/snapshot/tests/data/torch211_gpt_fixed.pickle.gz, without its 21,978 events.
"""

import functools
import gzip
import json
import os

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "segments.json.gz")
# A segment of ten.
BLOCK = 64 << 10


@functools.lru_cache(maxsize=None)
def segments():
    count = os.environ.get("STANDIN_BLOCKS")
    if count is not None:
        return [_segment(number) for number in range(int(count) // 10)]
    with gzip.open(RECORDED) as file:
        segments = json.load(file)
    for segment in segments:
        segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
    return segments


def _segment(number):
    """A segment of ten blocks, every second one free."""
    address = (1 << 46) + number * 10 * BLOCK
    blocks = [
        {
            "address": address + part * BLOCK,
            "size": BLOCK,
            "requested_size": BLOCK - 512 if part % 2 else 0,
            "state": "active_allocated" if part % 2 else "inactive",
            "frames": [],
        }
        for part in range(10)
    ]
    return {
        "device": 0,
        "address": address,
        "total_size": 10 * BLOCK,
        "allocated_size": 5 * BLOCK,
        "active_size": 5 * BLOCK,
        "requested_size": 5 * (BLOCK - 512),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


@functools.lru_cache(maxsize=None)
def stats(device):
    """All keys of torch 2.11's memory_stats(). Peaks and totals are as if nothing had been freed."""
    of_device = [segment for segment in segments() if segment["device"] == device]
    found = {}
    for pool in ("all", "large_pool", "small_pool"):
        chosen = [segment for segment in of_device if pool == "all" or segment["segment_type"] + "_pool" == pool]
        blocks = [block for segment in chosen for block in segment["blocks"]]
        taken = [block for block in blocks if block["state"] == "active_allocated"]
        active = [block for block in blocks if block["state"] != "inactive"]
        split = [b for s in chosen if len(s["blocks"]) > 1 for b in s["blocks"] if b["state"] == "inactive"]
        for name, count, size in (
            ("allocation", len(taken), None),
            ("segment", len(chosen), None),
            ("active", len(active), None),
            ("inactive_split", len(split), None),
            ("requested_bytes", 0, sum(block["requested_size"] for block in active)),
            ("allocated_bytes", 0, sum(block["size"] for block in taken)),
            ("reserved_bytes", 0, sum(segment["total_size"] for segment in chosen)),
            ("active_bytes", 0, sum(block["size"] for block in active)),
            ("inactive_split_bytes", 0, sum(block["size"] for block in split)),
        ):
            value = count if size is None else size
            found.update({f"{name}.{pool}.{kind}": value for kind in ("current", "peak", "allocated")})
            found[f"{name}.{pool}.freed"] = 0
    for name in ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_free"):
        found[name] = 0
    found["num_device_alloc"] = found["segment.all.current"]
    found["max_split_size"] = -1
    for name in ("oversize_allocations", "oversize_segments"):
        found.update({f"{name}.{kind}": 0 for kind in ("current", "peak", "allocated", "freed")})
    return dict(sorted(found.items()))
