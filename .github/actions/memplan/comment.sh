#!/usr/bin/env bash
# Keeps one comment on a pull request: found again by a hidden marker, made where there is none.
set -euo pipefail

export LC_ALL=C.UTF-8 # lengths in characters
LONGEST=65000      # GitHub takes 65,536 in a comment
body=$RUNNER_TEMP/memplan-comment.md
comments=repos/$GITHUB_REPOSITORY/issues/$PULL_REQUEST/comments
# What would end the marker early is left out of it.
marker="<!-- memplan gate: ${GATE//[^[:alnum:]._\/]/ } -->"

text=$(cat "$BODY")
if [ "${#text}" -gt "$LONGEST" ]; then
    text="${text:0:$LONGEST}

…cut here; the summary of the run has all of it."
fi
printf '%s\n%s\n' "$marker" "$text" >"$body"

say() {
    # A fork's token may not write: that is no reason to fail what has been judged.
    echo "::warning title=memplan::the comment on the pull request could not be $1; needs the permission pull-requests: write"
    exit 0
}

# The marker travels as a variable of the environment: jq reads it as text.
found=$(MARKER=$marker gh api --paginate "$comments?per_page=100" \
    --jq '.[] | select(.body | startswith(env.MARKER)) | .id') || say read
id=$(head -n 1 <<<"$found")
if [ -n "$id" ]; then
    gh api --silent --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$id" -F "body=@$body" || say updated
else
    gh api --silent --method POST "$comments" -F "body=@$body" || say made
fi
