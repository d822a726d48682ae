#!/bin/sh
# Build /app/recipes with fixed names and dates, so that its commits have the same ids everywhere.
set -eu
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
clock=1714550400

# as NAME: commit what is in the index as NAME, one hour later than the commit before.
as() {
    clock=$((clock + 3600))
    GIT_AUTHOR_NAME=$1 GIT_AUTHOR_EMAIL=$(echo "$1" | tr '[:upper:]' '[:lower:]')@example.org
    GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL
    GIT_AUTHOR_DATE="$clock +0200" GIT_COMMITTER_DATE="$clock +0200"
    export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE
    export GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_COMMITTER_DATE
    git add -A
    git commit -q -m "$2"
}

git init -q -b main /app/recipes
cd /app/recipes
printf '# Recipes\n\nOne file per dish.\n' >README.md
as Mira 'Start the collection'
printf 'flour 300 g\nwater 200 ml\nsalt\n' >bread.txt
as Mira 'Add bread'
base=$(git rev-parse HEAD)

printf 'rice 200 g\nsaffron\nstock 1 l\n' >risotto.txt
as Jonas 'Try risotto, unfinished'
git reset -q --hard "$base"

printf 'chickpeas 400 g\ntahini\nlemon\n' >hummus.txt
as Jonas 'Add hummus'
printf 'flour 300 g\nwater 210 ml\nsalt 6 g\nyeast 2 g\n' >bread.txt
as Mira 'Correct the bread: water, salt and yeast'
printf 'chickpeas 400 g\ntahini 80 g\nlemon\ngarlic 1\n' >hummus.txt
printf '# Recipes\n\nOne file per dish.\n\n- bread\n- hummus\n' >README.md
as Jonas 'Weigh the tahini and list the dishes'
git reset -q --hard "$base"

printf 'lentils 250 g\ncumin\n' >dal.txt
as Mira 'Add dal'

# Whoever works here, root or not, may use the repository.
unset GIT_CONFIG_NOSYSTEM
git config --system --add safe.directory '*'
