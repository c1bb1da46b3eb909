#!/bin/sh
# Prints the first interpreter that will do, or python3 for the error message that follows.
for name in python3 python3.13 python3.12 python3.11 python3.14; do
  if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then
    command -v "$name"
    exit 0
  fi
done
echo python3
