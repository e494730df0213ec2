# shellcheck shell=bash disable=SC2154,SC2034
# Sourced by check-deb and check-container: a clean Debian root, and steps that are reported.
# The caller sets `scratch`, an empty folder, and traps clean_up.
bad=0
mounts=()
clean_up() {
    for ((i = ${#mounts[@]}; i-- > 0;)); do umount -l "${mounts[i]}"; done
    rm -rf --one-file-system "$scratch"
}
ok() { echo "ok $1"; }
not_ok() { echo "not ok $1"; tail -n 15 "$scratch/log" | sed 's/^/  | /'; bad=1; }
# try WHAT COMMAND...
try() {
    local what=$1
    shift
    if "$@" >"$scratch/log" 2>&1; then ok "$what"; else not_ok "$what"; return 1; fi
}
# need WHAT TOOL...: ends the script if it cannot run here
need() {
    local what=$1 tool
    shift
    [ "$(id -u)" = 0 ] || { echo "skip $what: only root can make a clean root"; exit 0; }
    for tool in "$@"; do
        command -v "$tool" >/dev/null || { echo "skip $what: $tool is missing (apt-get install dpkg-dev debhelper" \
            "lintian debootstrap)"; exit 0; }
    done
}
# root_make DIR RELEASE
root_make() {
    local mirror
    mirror=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null |
        head -n 1)
    try "debootstrap $2" timeout -k 5 900 debootstrap --variant=minbase "$2" "$1" ${mirror:+"${mirror% }"}
}
# root_mount DIR: what programs expect of a running system, and the network's settings
root_mount() {
    local file
    for file in proc sys dev/shm; do
        mkdir -p "$1/$file"
        mount --bind "/$file" "$1/$file" && mounts+=("$1/$file")
    done
    for file in /etc/resolv.conf /etc/pip.conf /etc/ssl/certs/ca-certificates.crt /etc/apt/apt.conf \
        /etc/apt/apt.conf.d/*proxy*; do
        [ ! -e "$file" ] || { mkdir -p "$1$(dirname "$file")" && cp "$file" "$1$file"; }
    done
}
# inside DIR COMMAND...
inside() {
    local dir=$1
    shift
    timeout -k 5 900 chroot "$dir" env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@" </dev/null
}
