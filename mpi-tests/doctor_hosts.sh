#!/bin/sh
# rondo-doctor on other hosts: it asks each of many once, and gives up those that say nothing.
set -eu
doctor=${BUILD_DIR:?}/rondo-doctor
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' HUP INT TERM

# look HOSTS AGENT OPTION...: on them, which all fail, for $job, which has no rank: beside it, other tests of this
# user may run, whose ranks --all would find.
job=no-job.$$
look() {
    hosts=$1 agent=$2
    shift 2
    status=0
    timeout 60 "$doctor" "$job" --hosts "$hosts" --agent "$agent" "$@" >"$dir/out" 2>"$dir/err" || status=$?
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

look "h1;false,-oProxyCommand=false,user@h2" false
[ "$(grep -c 'a host is left out' "$dir/err") $(grep -c 'could not look' "$dir/err")" = "2 1" ] ||
    { echo "a word is taken for a host:"; cat "$dir/err"; exit 1; }

# As ssh, whose other end is a shell. The answer of the doctor that it starts is empty.
printf '#!/bin/sh\nshift\nexec sh -c "$*"\n' >"$dir/ssh"
chmod +x "$dir/ssh"
for job in "x;touch $dir/evil" '123[4].server' "%41\$(touch $dir/evil)" "it's"; do
    look h1 "$dir/ssh" --any-host --sample 1
    [ ! -e "$dir/evil" ] || { echo "a shell runs the name of a job"; exit 1; }
    ! grep -q 'could not look' "$dir/err" || { echo "job $job:"; cat "$dir/err"; exit 1; }
done
status=0
"$doctor" no-job --hosts h1 --agent "$(seq -s ' ' 1 40)" >"$dir/out" 2>"$dir/err" || status=$?
[ $status = 2 ] && grep -q 'more than 32 words' "$dir/err" || { echo "an agent is cut: $status"; exit 1; }

for wrong in "--wait 0" "--wait soon" "--slow 1s" "--slow -1"; do
    # shellcheck disable=SC2086 # two words
    "$doctor" --all $wrong >"$dir/out" 2>"$dir/err" && { echo "$wrong is taken"; exit 1; }
    grep -q -e "$wrong: expected a number of seconds" "$dir/err" || { echo "$wrong:"; cat "$dir/err"; exit 1; }
done
