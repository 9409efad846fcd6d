"""The UUID of a CUDA device, from the driver library that torch has loaded."""

from __future__ import annotations

import ctypes
import os
import uuid
from typing import Any, Optional

# cuda.h: CUDA_SUCCESS, and sizeof(CUuuid).
_SUCCESS = 0
_BYTES = 16


def of(index: int, properties: Any) -> Optional[str]:
    """Returns the UUID of torch's device `index`, as NVML writes it: "GPU-..." or, for a MIG device, "MIG-...".

    torch numbers devices as the driver does for this process. `properties` is what torch says of the device, for a driver that cannot
    be asked. None: nobody knows.
    """
    return _from_driver(index) or _from_torch(properties)


def _from_driver(index: int) -> Optional[str]:
    try:
        # The library is loaded already. RTLD_NOLOAD keeps this from loading another one.
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        device = ctypes.c_int()
        if driver.cuDeviceGet(ctypes.byref(device), ctypes.c_int(index)) != _SUCCESS:
            return None
        gpu = _ask(driver, "cuDeviceGetUuid", device)
        # cuda.h: of a MIG device cuDeviceGetUuid_v2 returns its own UUID, and cuDeviceGetUuid that of the GPU. v2 is of CUDA 11.4.
        part = _ask(driver, "cuDeviceGetUuid_v2", device)
    except (OSError, AttributeError):
        return None
    if part is not None and gpu is not None and part != gpu:
        return f"MIG-{part}"
    return f"GPU-{gpu}" if gpu is not None else None


def _ask(driver: ctypes.CDLL, name: str, device: ctypes.c_int) -> Optional[uuid.UUID]:
    room = ctypes.create_string_buffer(_BYTES)
    function = getattr(driver, name, None)
    if function is None or function(room, device) != _SUCCESS:
        return None
    return uuid.UUID(bytes=room.raw)


def _from_torch(properties: Any) -> Optional[str]:
    # torch 2.5 and newer.
    known = getattr(properties, "uuid", None)
    return f"GPU-{known}" if known is not None else None
