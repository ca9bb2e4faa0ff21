#!/usr/bin/env bash
# Installs torch where there is none, then memplan, then what the targets need.
set -euo pipefail

if ! python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; then
    # From its own index alone: the CPU build of a version stands on others beside larger ones.
    index=()
    [ -z "${TORCH_INDEX:-}" ] || index=(--index-url "$TORCH_INDEX")
    python -m pip install --quiet "${index[@]}" "$TORCH"
fi
# The action lies in memplan's repository, three folders below its top.
python -m pip install --quiet "${SOURCE:-$GITHUB_ACTION_PATH/../../..}"
if [ -n "${INSTALL:-}" ]; then
    # Several words on purpose.
    # shellcheck disable=SC2086
    python -m pip install --quiet $INSTALL
fi
