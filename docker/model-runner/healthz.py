"""Health check of the model server: exit 0 when /healthz answers 200. The standard library only, so it starts fast."""

import sys
from urllib.request import urlopen

with urlopen(f"http://127.0.0.1:{sys.argv[1]}/healthz", timeout=4) as answer:
    sys.exit(0 if answer.status == 200 else 1)
