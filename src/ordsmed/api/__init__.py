"""The Python interface: `ordsmed.open`, `pretrain`, `finetune` and others, which the commands call as well."""
