# Run the command. After a lost process or node, run it again, $times times at most: on a spare node, else on other
# nodes after requeuing the job, else on the same nodes. A run that was told to stop (before the time limit) is
# requeued. An error of the run ends the job.
# Exit status 143, 138, 129: stopped by SIGTERM, SIGUSR1, SIGHUP, and saved; 75: a process died or hangs; other numbers
# above 128: killed; 1 or 2: an error of the run.
# Lines of $record: JOB run TIME NODES LOG-LENGTH, JOB lost TIME NODES, JOB over TIME STATUS
log=$(readlink "/proc/$$/fd/2")
note() { echo "$SLURM_JOB_ID $1 $(date +%FT%T) $2" >>"$record"; }
lost() { sed -n "s/^$SLURM_JOB_ID lost [^ ]* //p" "$record" 2>/dev/null; }
bad() { lost | tr , '\n' | grep -vx - | sort -u; }
down() { sinfo --noheader --Node --format=%N --states=down,fail,no_respond --nodes="$1" 2>/dev/null | sort -u; }
hosts() { scontrol show hostnames "$1"; }
ours() { # the nodes of this job without lost ones; this node is last, because the script would be lost with it
    left=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%N 2>/dev/null)
    left=$(hosts "${left:-$SLURM_JOB_NODELIST}")
    tail -n +2 <<<"$left" && head -n 1 <<<"$left"
}
list() { paste -sd , -; }
words() { tail -c "+$((begin + 1))" "$log" 2>/dev/null | sed '/^srun: First task exited/q'; }

pick() { # choose the nodes to run on: the first ones that are up and have not been lost before
    good=$(ours | grep -vxFf <(bad; down "$SLURM_JOB_NODELIST") | head -n "$wanted")
    [ "$(grep -c . <<<"$good")" = "$wanted" ] || [ -z "$(bad)" ] && return
    good=$(ours | grep -vxFf <(down "$SLURM_JOB_NODELIST") | head -n "$wanted")
    return 1
}

own_error() { # did a process end with an error of the run?
    if [ "$by" = torchrun ]; then
        words | grep -qE 'exitcode +: [12] '
    else
        words | grep -qE '^srun: error: .*: Exited with exit code [12]$'
    fi
}

was_stopped() { # was the run told to stop? torchrun always ends with 1, so the time in the job decides
    own_error && return 1
    if [ "$by" = torchrun ]; then
        [ "$status" != 0 ] && [ "$SECONDS" -ge "$late" ]
    else
        case $status in 129 | 138 | 143) ;; *) return 1 ;; esac
    fi
}

was_lost() {
    was_stopped || own_error && return 1
    case $status in
    75) return 0 ;;
    129 | 130 | 138 | 141 | 143) return 1 ;;
    esac
    [ "$status" -gt 128 ] || words | grep -qE '^srun: error: (Node failure on|Timed out waiting for job step)|exitcode +: (-(4|6|7|8|9|11)|75) '
}

failed() { # the nodes that failed, by the messages of ordsmed and Slurm, else those on which srun saw killed processes
    named=$({
        words | grep 'lost or hanging: ' | grep -oE 'rank [0-9]+ \([^,]+, process' | sed -E 's/.*\((.*),.*/\1/'
        words | sed -nE 's/^srun: error: Node failure on ([^ .]+).*/\1/p'
        down "$nodes"
    } | sort -u | grep -xFf <(hosts "$nodes"))
    [ -n "$named" ] || named=$(words | sed -nE '/Exited with|Terminated/!s/^srun: error: ([^ ]+): tasks? .*/\1/p' |
        while read -r some; do hosts "$some"; done | sort -u | grep -xFf <(hosts "$nodes"))
    if [ "$wanted" = 1 ] || [ "$(grep -c . <<<"$named")" -lt "$wanted" ]; then # if all of several nodes failed, do not blame any
        list <<<"$named"
    fi
}

may_try() {
    [ "$(lost | wc -l)" -le "$times" ] && return
    echo "ordsmed: a process or a node was lost $(lost | wc -l) times ($(bad | list)), so it is not restarted again; see $record" >&2
    return 1
}

clear_steps() { # cancel job steps that a killed srun left
    for _ in {1..30}; do
        steps=$(squeue --steps --noheader --jobs="$SLURM_JOB_ID" --format=%i 2>/dev/null | grep '\.[0-9]') || break
        xargs scancel <<<"$steps"
        sleep 1
    done
}

elsewhere() { # requeue the job without bad nodes, or return if that is not possible
    [ "$requeue" = yes ] || return
    avoided=$(scontrol show job "$SLURM_JOB_ID" 2>/dev/null | sed -nE 's/.*ExcNodeList=([^ (]+).*/\1/p')
    avoid=$({ bad; [ -z "$avoided" ] || hosts "$avoided"; } | sort -u | list)
    if ! sbatch --test-only --exclude="$avoid" "$0" >/dev/null 2>&1; then
        echo "ordsmed: there are no nodes without $avoid" >&2
        avoid=""
        [ -n "$(down "$SLURM_JOB_NODELIST")" ] || return
    fi
    trap '' TERM # requeuing sends SIGTERM to this script, which must still exclude the nodes
    echo "ordsmed: the job is requeued${avoid:+, without $avoid}" >&2
    scontrol requeue "$SLURM_JOB_ID" || return
    for _ in {1..20}; do
        [ -z "$avoid" ] || scontrol update jobid="$SLURM_JOB_ID" excnodelist="$avoid" && break
        sleep 0.5
    done
    exit "$status"
}

last=$(grep "^$SLURM_JOB_ID " "$record" 2>/dev/null | tail -n 1)
if [[ $last == "$SLURM_JOB_ID run "* ]]; then # Slurm ended it: preempted, requeued, or a node was lost
    read -r _ _ _ nodes begin <<<"$last"
    failed=$(failed)
    if [ -n "$failed" ] || words | grep -q 'DUE TO NODE FAILURE'; then note lost "${failed:--}"; fi
fi
[ "$requeue" = no ] || before=$(saved)
status=75 again=""
while may_try; do
    pick || elsewhere
    nodes=$(list <<<"$good")
    begin=$(stat --format=%s "$log" 2>/dev/null || echo 0)
    [ -z "$again" ] || echo "ordsmed: resuming on $nodes" >&2
    note run "$nodes $begin"
    status=0
    run || status=$?
    note over "$status"
    was_lost || break
    failed=$(failed)
    note lost "${failed:--}"
    again=yes
    echo "ordsmed: lost ${failed:-a process on an unknown node}" >&2
    clear_steps
done

if was_stopped && [ "$requeue" = yes ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 100 ]; then
    # not if nothing was saved since the last requeue: then the time is too short
    if [ "${SLURM_RESTART_COUNT:-0}" = 0 ] || [ "$(saved)" != "$before" ]; then
        scontrol requeue "$SLURM_JOB_ID"
    else
        echo "ordsmed: no step was saved since this job was last requeued, so it is not requeued again; use a longer --time" >&2
    fi
fi
exit "$status"
