"""Machine: pretraining on encoded text, and the whole way once; called, it is `ordsmed.pretrain`."""

import sys

from ordsmed.base.called import CalledRoom

sys.modules[__name__].__class__ = CalledRoom
