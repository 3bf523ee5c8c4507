"""What each process of runs on two does: it trains by recipes, or goes on with what folders hold, in turn.

usage: runs_gone_on_with.py RECIPE|FOLDER...    started as several processes with torchrun's variables
"""

from __future__ import annotations

import os
import sys

from ordsmed.train.pretrain.pretrain import pretrain

if __name__ == "__main__":
    os.environ.setdefault("RANK", "0")
    for name in sys.argv[1:]:
        pretrain(name, yes=True)
