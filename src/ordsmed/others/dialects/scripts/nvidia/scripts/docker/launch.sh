#!/usr/bin/env bash
# Run a shell or a command in the image: launch.sh CMD DEVICES; this folder is mounted, all GPUs by default
set -e
if [ ! -e scripts/docker/ordsmed/Dockerfile ]; then
    echo "launch.sh: scripts/docker/ordsmed: there is no image; run: bash scripts/docker/build.sh" >&2
    exit 2
fi
tag=$(sed -n 's/^# ordsmed \([^ ]*\) .*/\1/p' scripts/docker/ordsmed/Dockerfile)
gpus=()
[ "${2:-all}" = none ] || gpus=(--gpus "device=${2:-all}")
exec docker run --rm -it "${gpus[@]}" --ipc=host --ulimit memlock=-1 --ulimit stack=67108864 \
    --volume "$PWD:/workspace/electra" --workdir /workspace/electra "ordsmed:$tag" ${1:-/bin/bash}
