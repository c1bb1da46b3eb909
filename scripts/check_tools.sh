#!/bin/sh
# check_tools.sh PYTHON: one sentence on what is missing for the build, if anything is.
python=$1
fail() {
  echo "make: $*" >&2
  exit 1
}
"$python" -c '' 2>/dev/null || fail "there is no $python: install Python 3.11 or newer, or name one with PYTHON=."
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' ||
  fail "$("$python" --version 2>&1) will not do: Python 3.11 to 3.14 is needed, name one with PYTHON=."
"$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
  fail "$python has no Python.h: install its headers (Debian: apt-get install python3-dev)."
command -v "${CC:-cc}" > /dev/null || fail "there is no C compiler (${CC:-cc}): install gcc 11 or newer (Debian: apt-get install build-essential)."
command -v "${CXX:-c++}" > /dev/null || fail "there is no C++ compiler (${CXX:-c++}): install g++ 11 or newer (Debian: apt-get install build-essential)."
