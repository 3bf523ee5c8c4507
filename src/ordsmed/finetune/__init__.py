"""Machine: fine-tuning of a pretrained network for a task, and trials; called, it is `ordsmed.finetune`."""

import sys

from ordsmed.base.called import CalledRoom

sys.modules[__name__].__class__ = CalledRoom
