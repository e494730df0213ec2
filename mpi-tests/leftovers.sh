# shellcheck shell=sh
# To be sourced: what a job has left, processes and shared memory.

hex8='[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'

# marked NAME=VALUE: print the processes that have it in their environment, which they inherit, whoever is
# their parent. VALUE is a regular expression.
marked() {
    find /proc -maxdepth 2 -path '/proc/[0-9]*/environ' -exec grep -lsz "^$1\$" {} + 2>/dev/null |
        sed 's,/proc/\([0-9]*\)/.*,\1,' || :
}

# shared_memory: print the names of this user's
shared_memory() {
    find /dev/shm -maxdepth 1 -name "rondo-$hex8$hex8" -user "$(id -u)" 2>/dev/null | LC_ALL=C sort || :
}

mapped() { # mapped FILE: some process maps it
    find /proc -maxdepth 2 -path '/proc/[0-9]*/maps' -exec grep -qsF "$1" {} \; -print -quit 2>/dev/null |
        grep -q .
}

# unused: read names of shared memory and print those that are left over. A name contains its creator's
# process id. If that process still runs it belongs to another job, because this one has ended; if another
# job has just ended, the file disappears in a moment.
unused() {
    while read -r file; do
        maker=${file##*/rondo-} maker=$((0x${maker%????????}))
        if [ -e "/proc/$maker" ] || mapped "$file"; then continue; fi
        sleep 1
        [ ! -e "$file" ] || echo "$file"
    done
}
