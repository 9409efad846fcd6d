"""Stands in for rmm: resources that call back."""

import types


class _CallbackMemoryResource:
    def __init__(self, allocate, deallocate):
        self.allocate, self.deallocate = allocate, deallocate


class Stream:
    """The default stream."""

    def __cuda_stream__(self):
        return 0, 0


def _set_current_device_resource(resource):
    global current
    current = resource


current = None
mr = types.SimpleNamespace(CallbackMemoryResource=_CallbackMemoryResource, set_current_device_resource=_set_current_device_resource)
