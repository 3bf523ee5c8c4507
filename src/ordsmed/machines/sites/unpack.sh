# Python and its packages are copied to each node's own disk, $local, once: hundreds of processes that open thousands of
# files each on a disk that they share wait for one another. $packed holds them, in $folders folders of Python's path.
unpacked="$local/ordsmed-$SLURM_JOB_ID"
each() { srun --nodelist="$nodes" --nodes="$wanted" --ntasks="$wanted" --ntasks-per-node=1 "$@"; }
unpack() {
    from="$unpacked.tar"
    if ! sbcast --force "$packed" "$from"; then
        echo "ordsmed: sbcast failed: each node reads $packed itself" >&2
        from="$packed"
    fi
    # shellcheck disable=SC2016 # for the shell of each node
    each bash -c 'rm -rf "$0" && mkdir -p "$0" && tar -xf "$1" -C "$0"; code=$?; rm -f "$0.tar"; exit "$code"' \
        "$unpacked" "$from" && return
    code=$?
    echo "ordsmed: $local: Python could not be unpacked there; wanted room on each node; name another by --packed" >&2
    clean
    return "$code"
}
clean() { each rm -rf "$unpacked"; }
path=$(seq --format="$unpacked/%.0f" --separator=: 0 "$((folders - 1))")
export PYTHONPATH="$path${PYTHONPATH:+:$PYTHONPATH}:$PWD" PYTHONSAFEPATH=1 # this folder last, not first
