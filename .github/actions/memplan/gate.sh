#!/usr/bin/env bash
# Runs the gate with every report that GitHub shows. Always ends well: the verdict is an output, and the last step's.
set -euo pipefail

reports=$RUNNER_TEMP/memplan-reports
errors=$RUNNER_TEMP/memplan-errors.txt
rm -rf "$reports"
mkdir -p "$reports"

words=(gate -f text
    -f "json=$reports/gate.json" -f "markdown=$reports/gate.md" -f "html=$reports/gate.html"
    -f "sarif=$reports/gate.sarif" -f "junit=$reports/gate.xml" -f "github=$reports/annotations.txt"
    -f "comment=$reports/comment.md")
[ -z "${PROJECT:-}" ] || words+=(--project "$PROJECT")
if [ -n "${CACHE_DIR:-}" ]; then words+=(--cache-dir "$CACHE_DIR"); else words+=(--no-cache); fi

code=0
memplan "${words[@]}" 2>"$errors" || code=$?
cat "$errors" >&2

if [[ $code =~ ^[013]$ ]]; then
    # Annotations are lines on standard output that GitHub reads.
    cat "$reports/annotations.txt"
    rm "$reports/annotations.txt"
    {
        echo "reports=$reports"
        echo "json=$reports/gate.json"
        echo "sarif=$reports/gate.sarif"
        echo "html=$reports/gate.html"
        echo "comment=$reports/comment.md"
    } >>"$GITHUB_OUTPUT"
else
    # Configuration that is wrong, or an internal error: nothing was judged, and a comment must not go on saying it was.
    {
        echo "### memplan gate could not run (exit code $code)"
        echo
        echo '````text'
        cat "$errors"
        echo '````'
    } >"$reports/gate.md"
    echo "comment=$reports/gate.md" >>"$GITHUB_OUTPUT"
fi
cat "$reports/gate.md" >>"$GITHUB_STEP_SUMMARY"
echo "exit-code=$code" >>"$GITHUB_OUTPUT"
