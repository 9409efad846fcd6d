"""The compiler. STANDIN_COMPILER=broken lacks something that it needs."""

import os

if os.environ.get("STANDIN_COMPILER") == "broken":
    raise ImportError("no module named triton")
