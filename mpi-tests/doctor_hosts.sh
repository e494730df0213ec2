#!/bin/sh
# rondo-doctor on other hosts: it asks each of many once, and gives up those that say nothing.
set -eu
doctor=${BUILD_DIR:?}/rondo-doctor
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# look HOSTS AGENT OPTION...: on them, which all fail, for a job of no rank: beside it, other tests of this user
# may run, whose ranks --all would find.
look() {
    hosts=$1 agent=$2
    shift 2
    status=0
    timeout 60 "$doctor" "no-job.$$" --hosts "$hosts" --agent "$agent" "$@" >"$dir/out" 2>"$dir/err" || status=$?
    [ $status = 3 ] || { echo "rondo-doctor ended with $status:"; cat "$dir/err"; exit 1; }
}

look "h1,$(seq -s , -f h%g 1 5000),h5000" false
reported=$(grep 'could not look on host' "$dir/err" | sort -u | wc -l)
all=$(grep -c 'could not look on host' "$dir/err")
[ "$reported $all" = "5000 5000" ] || { echo "of 5000 hosts $reported are reported, on $all lines"; exit 1; }

look "$(seq -s x 1 80),h1" false
grep -q 'is left out' "$dir/err" || { echo "a name that is too long is left out silently"; exit 1; }

printf '#!/bin/sh\nexec sleep 100\n' >"$dir/mute"
chmod +x "$dir/mute"
look h1,h2 "$dir/mute" --wait 0.5
[ "$(grep -c 'said nothing' "$dir/err")" = 2 ] || { echo "mute hosts are not reported"; cat "$dir/err"; exit 1; }

for wrong in "--wait 0" "--wait soon" "--slow 1s" "--slow -1"; do
    # shellcheck disable=SC2086 # two words
    "$doctor" --all $wrong >"$dir/out" 2>"$dir/err" && { echo "$wrong is taken"; exit 1; }
    grep -q -e "$wrong: expected a number of seconds" "$dir/err" || { echo "$wrong:"; cat "$dir/err"; exit 1; }
done
