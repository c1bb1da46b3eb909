#!/bin/sh
# have_version.sh TOOL MINIMUM: is TOOL on the PATH, and new enough?
found=$("$1" --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+' | head -n 1)
[ -n "$found" ] && [ "$(printf '%s\n' "$2" "$found" | sort -V | head -n 1)" = "$2" ]
