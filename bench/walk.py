"""List a directory and all below it, and get the status of each file: the least that `ls` can do.

python -ISs bench/walk.py DIR
"""

import os
import sys


def walk(directory: str) -> int:
    """Return the number of entries."""
    count = 0
    pending = [directory]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                count += 1
                entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
    return count


if __name__ == "__main__":
    walk(sys.argv[1])
