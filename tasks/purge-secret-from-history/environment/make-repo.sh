#!/bin/sh
# Build /app/billing with fixed names and dates, so that its commits have the same ids everywhere.
set -eu
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
clock=1700000000

# as NAME MESSAGE: commit everything as NAME, one hour later than the commit before.
as() {
    clock=$((clock + 3600))
    GIT_AUTHOR_NAME=$1 GIT_AUTHOR_EMAIL=$(echo "$1" | tr '[:upper:]' '[:lower:]')@example.org
    GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL
    GIT_AUTHOR_DATE="$clock +0100" GIT_COMMITTER_DATE="$clock +0100"
    export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE
    export GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_COMMITTER_DATE
    git add -A
    git commit -q -m "$2"
}

git init -q -b main /app/billing
cd /app/billing
mkdir deploy
printf 'def total(lines):\n    return sum(lines)\n' >billing.py
as Tove 'Add totals'
printf 'GATEWAY_KEY=sk-live-4f9a17c2d0\n' >deploy/credentials.env
printf 'Deploy with deploy/run.sh\n' >deploy/README
as Rui 'Describe the deployment'
printf 'GATEWAY_KEY=sk-live-4f9a17c2d0\nGATEWAY_URL=https://pay.example.org\n' >deploy/credentials.env
as Rui 'Add the gateway address'
printf 'def total(lines, tax=0):\n    return sum(lines) + tax\n' >billing.py
as Tove 'Add tax'
git tag -a v1.0 -m 'First release'

git switch -q -c invoices
printf 'def invoice(lines):\n    return f"total {sum(lines)}"\n' >invoice.py
printf 'GATEWAY_KEY=sk-live-77b1e06a35\n' >deploy/credentials.env
as Ines 'Print invoices'

git switch -q main
git rm -q deploy/credentials.env
printf 'deploy/credentials.env\n' >.gitignore
as Rui 'Ignore the credentials'
git tag v1.1
printf 'Deploy with deploy/run.sh, after asking Rui.\n' >deploy/README
as Tove 'Say whom to ask'

unset GIT_CONFIG_NOSYSTEM
git config --system --add safe.directory '*'
