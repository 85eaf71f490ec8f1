"""Write the JSON Schema of certificates into the package; `--check` only compares.

python docs/certificate_schema.py [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from reasoning_gym_environment.proof import certificate

FILE = Path(certificate.__file__).with_name("certificate.schema.json")


def main() -> int | str:
    text = json.dumps(certificate.json_schema(), indent=1) + "\n"
    if "--check" in sys.argv[1:]:
        is_current = FILE.read_text(encoding="utf-8") == text
        return 0 if is_current else f"{FILE.name} is out of date; run make docs"
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
