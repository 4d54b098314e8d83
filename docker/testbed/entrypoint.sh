#!/bin/sh
# The harness with the addresses of its services. The password is put into REDIS_URL here, in the process, and not in
# compose.yaml, where `docker inspect` would show it.
set -eu
password=$(cat /run/secrets/redis-password)
export REDIS_URL="redis://:$password@${REDIS_ADDRESS:-redis:6379}/0"
export REDIS_LOG_URL="redis://:$password@${REDIS_LOG_ADDRESS:-redis-log:6379}/0"
[ "${1-}" != python ] || exec "$@"
exec python -m testbed "$@"
