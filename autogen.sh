#!/bin/sh
# Make ./configure (needs autoconf, automake, libtool, pkg-config: scripts/install-deps).
set -eu
cd "$(dirname "$0")"
exec autoreconf -fi "$@"
