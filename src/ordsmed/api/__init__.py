"""Python: `ordsmed.open`, `pretrain`, `finetune`; commands call them too."""
