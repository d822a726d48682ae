#!/bin/sh
set -eu
cp "$(dirname "$0")/todo.py" /app/todo.py
python3 /app/todo.py add buy milk
python3 /app/todo.py add call Ida
