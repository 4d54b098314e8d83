#!/bin/sh
# Starts Redis with the config file given, and the password from the secret added to it on standard input: so it is
# on no command line, in no environment and in no image. `exec`, so that signals reach the server.
set -eu
[ -s /run/secrets/redis-password ] || { echo "no password in /run/secrets/redis-password; run: make up" >&2; exit 1; }
exec docker-entrypoint.sh redis-server - <<CONF
$(cat "$1")
requirepass $(cat /run/secrets/redis-password)
CONF
