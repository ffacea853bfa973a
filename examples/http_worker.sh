#!/usr/bin/env bash
# An HTTP worker in bash, with curl and openssl: it reads one request from its standard input, as a
# server such as socat or CGI gives it, and works on the task in it.
#   socat TCP-LISTEN:8080,reuseaddr,fork EXEC:./http_worker.sh
set -eu
origin=${TENURE_ORIGIN:-http://127.0.0.1:7300}
key=$(printf %s "${ENDPOINT_SECRET#whsec_}" | base64 -d | od -An -v -tx1 | tr -d ' \n')

read -r _
while IFS=': ' read -r name value && [ -n "${name%$'\r'}" ]; do
  value=${value%$'\r'}
  case ${name,,} in
    content-length) length=$value ;;
    webhook-id) id=$value ;;
    webhook-timestamp) at=$value ;;
    webhook-signature) signatures=$value ;;
  esac
done
body=$(head -c "$length")
mine=$(printf '%s.%s.%s' "$id" "$at" "$body" |
  openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" -binary | base64)
age=$(($(date +%s) - at))
if [[ " $signatures " != *" v1,$mine "* ]] || ((age > 300 || age < -300)); then
  printf 'HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n'
  exit
fi
printf 'HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n'

field() { printf %s "$body" | sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }
token=$(field taskToken)
[ -n "$token" ] || exit 0  # A ping has no task.
call() {
  curl -sf --retry 5 --retry-connrefused "$origin/v1/tasks/$(field taskId)/$1" \
    -H "authorization: Bearer $token" -H 'content-type: application/json' \
    -d "{\"attempt\": $(field attempt), \"workerId\": \"$HOSTNAME-$$\"${2:-}}"
} >&2
call started
call completed ', "outcome": "SUCCEEDED", "output": {"sent": true}'
