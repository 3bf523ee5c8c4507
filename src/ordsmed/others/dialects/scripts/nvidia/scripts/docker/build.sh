#!/usr/bin/env bash
# Write a Dockerfile with ordsmed and PyTorch, instead of the original's with TensorFlow, and build it with docker or
# podman; with enroot, also make the file for Pyxis. SITE names the GPUs (a100; see `ordsmed sites`); further arguments
# go to `ordsmed install`: --image NAME, --from WHEELS
set -e
python -m ordsmed install --by docker --site "${SITE:-a100}" --out scripts/docker/ordsmed --yes "$@"
