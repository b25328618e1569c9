"""Pages of PDF by pypdf for each second of CPU; run by benchmarks/pdf.py in an environment that has it."""

import json
import sys
import time


def main() -> None:
    from pypdf import PdfReader

    best = 0.0
    for _ in range(2):
        began, pages = time.process_time(), 0
        for path in sys.argv[1:]:
            for page in PdfReader(path).pages:
                page.extract_text()
                pages += 1
        best = max(best, pages / (time.process_time() - began))
    print(json.dumps({"pypdf": round(best)}))


if __name__ == "__main__":
    main()
