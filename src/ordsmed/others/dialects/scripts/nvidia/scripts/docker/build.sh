#!/usr/bin/env bash
# An image with ordsmed and PyTorch, in place of theirs with TensorFlow: a Dockerfile is written, and built by docker or
# podman; where enroot is, Pyxis' file is made too. SITE says for which GPUs (a100; see `ordsmed sites`); further words
# go to `ordsmed install`: --image NAME, --from WHEELS
set -e
python -m ordsmed install --by docker --site "${SITE:-a100}" --out scripts/docker/ordsmed --yes "$@"
