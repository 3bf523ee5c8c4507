#!/usr/bin/env bash
# The former name of make.sh. `ordsmed speedrun` is something else: the best model of a fixed budget, docs/speedrun.md.
exec "$(dirname "$0")/make.sh" "$@"
