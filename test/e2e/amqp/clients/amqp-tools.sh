#!/bin/sh
# amqp-tools: declare, publish, get, consume, delete. usage: amqp-tools.sh AMQP_URL
set -e
amqp-declare-queue --url "$1" -d -q tools.q
amqp-publish --url "$1" -p -r tools.q -b one
printf two | amqp-publish --url "$1" -p -r tools.q
[ "$(amqp-get --url "$1" -q tools.q)" = one ] && echo "ok amqp-get takes the first"
[ "$(amqp-consume --url "$1" -q tools.q -c 1 cat)" = two ] && echo "ok amqp-consume takes the second"
amqp-delete-queue --url "$1" -q tools.q > /dev/null
echo done
