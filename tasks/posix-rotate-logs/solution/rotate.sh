#!/bin/sh
# Rotate log files: rotate.sh [-k COUNT] [--] FILE...

usage() {
    echo "usage: rotate.sh [-k COUNT] [--] FILE..." >&2
    exit 2
}

# old_number FILE NAME: print N if NAME is FILE.N, an old file.
old_number() {
    number=${2#"$1".}
    case $number in
        '' | 0* | *[!0-9]*) return 1 ;;
    esac
    echo "$number"
}

# rotate FILE: move its old files up, then itself.
rotate() {
    folder=$(dirname -- "$1")/
    base=${1##*/}
    for path in "$folder"* "$folder".*; do
        name=${path##*/}
        case $name in
            "$base".*) ;;
            *) continue ;;
        esac
        if number=$(old_number "$base" "$name") && [ "$number" -ge "$keep" ]; then
            rm -f -- "$path"
        fi
    done
    number=$keep
    while [ "$number" -gt 1 ]; do
        previous=$((number - 1))
        if [ -e "$folder$base.$previous" ]; then
            mv -f -- "$folder$base.$previous" "$folder$base.$number"
        fi
        number=$previous
    done
    cp -p -- "$folder$base" "$folder$base.1" && : >"$folder$base"
}

keep=3
while getopts k: option 2>/dev/null; do
    case $option in
        k) keep=$OPTARG ;;
        *) usage ;;
    esac
done
shift $((OPTIND - 1))
case $keep in
    '' | *[!0-9]*) usage ;;
esac
if [ "$keep" -lt 1 ] || [ $# -eq 0 ]; then
    usage
fi

status=0
for file in "$@"; do
    if [ ! -f "$file" ]; then
        echo "rotate.sh: not a regular file: $file" >&2
        status=1
    elif [ -s "$file" ]; then
        rotate "$file" || status=1
    fi
done
exit $status
