#!/bin/sh
set -eu
cd /app/recipes
# A cherry-pick needs a committer.
export GIT_COMMITTER_NAME=Oracle GIT_COMMITTER_EMAIL=oracle@example.org
last=$(git log -g --all --format=%H --fixed-strings --grep='Weigh the tahini' | head -n 1)
git cherry-pick "$last~3..$last"
