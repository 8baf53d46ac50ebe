# Keeps the authority and the certificates of a release in Secrets: takes what there is, lets `syctl certs
# ensure` make and renew the rest, and writes all back.
#   API           URL of the namespace's Secrets       INSTANCE      the release, for their labels
#   TRUST_DOMAIN, PREFIX, DAYS, ROTATE_AUTHORITY   as the options of syctl certs ensure
#   AUTHORITY     the Secret of the authority          HOLDERS       holder=Secret=roles, with spaces between
# Files with keys are in memory, and no argument of a program has a secret.
set -eu
umask 077
cd /work
account=/var/run/secrets/kubernetes.io/serviceaccount
{ printf 'Authorization: Bearer '; cat "$account/token"; } >headers

fail() {
  echo "FAILED: $*"
  exit 1
}

# request METHOD URL TYPE: sends `body` where METHOD is no GET. The answer is in `answer`, its code in $code. It waits
# up to 10 s for rights: the API server may not know yet a Role that was made a moment ago.
request() {
  [ "$1" = GET ] && set -- "$1" "$2" || set -- "$1" "$2" -H "Content-Type: $3" --data-binary @body
  method=$1 url=$2
  shift 2
  for attempt in 1 2 3 4 5 6 7 8 9 10; do
    code=$(curl -sS -A switchyard --connect-timeout 5 --max-time 20 --retry 8 --retry-connrefused --retry-max-time 60 \
      --cacert "$account/ca.crt" -H @headers -X "$method" "$@" -o answer -w '%{http_code}' "$url") ||
      fail "$method $url: no answer"
    [ "$code" = 403 ] || return 0
    sleep 1
  done
}

# take SECRET FOLDER FILE...: the files of a Secret, if there is one. FILE? may be missing. The folder is made either
# way: whoever uses a Secret that was deleted has no files that a rotation could count on.
take() {
  secret=$1 folder=$2
  shift 2
  mkdir -p "$folder"
  request GET "$API/$secret"
  case $code in
    404) return 0 ;;
    200) ;;
    *) fail "GET secret $secret: HTTP $code $(head -c 300 answer)" ;;
  esac
  for file; do
    key=${file%\?}
    sed -n "s/.*\"$key\": *\"\([^\"]*\)\".*/\1/p" answer | base64 -d >"$folder/$key"
    [ ! -s "$folder/$key" ] || continue
    [ "$file" != "$key" ] || fail "secret $secret has no $file. Put it back, or delete the Secret to make all anew"
    rm "$folder/$key"
  done
}

# put SECRET TYPE FOLDER FILE...: writes the files. A Secret that has them already stays as it is. FILE? that is not
# there is taken out.
put() {
  secret=$1 type=$2 folder=$3
  shift 3
  data=
  for file; do
    key=${file%\?} value=null
    [ "$file" != "$key" ] && [ ! -e "$folder/$key" ] || value="\"$(base64 "$folder/$key" | tr -d '\n')\""
    data="$data${data:+,}\"$key\":$value"
  done
  labels="\"app.kubernetes.io/instance\":\"$INSTANCE\",\"app.kubernetes.io/part-of\":\"switchyard\""
  printf '{"apiVersion":"v1","kind":"Secret","metadata":{"name":"%s","labels":{%s}},"type":"%s","data":{%s}}' \
    "$secret" "$labels" "$type" "$data" >body
  request PATCH "$API/$secret" application/merge-patch+json
  if [ "$code" = 404 ]; then
    sed 's/,"[^"]*":null//g' body >new
    cp new body
    request POST "$API" application/json
  fi
  case $code in
    200 | 201) ;;
    *) fail "cannot write secret $secret: HTTP $code $(head -c 300 answer)" ;;
  esac
}

rotation() {
  cat all/authority/rotation.yaml 2>/dev/null || :
}

# since TIME: writes it down as the beginning of the phase.
since() {
  sed "s/^since: .*/since: $1/" all/authority/rotation.yaml >new
  cp new all/authority/rotation.yaml
}

put_authority() {
  put "$AUTHORITY" Opaque all/authority ca.crt ca.key next.crt? next.key? previous.crt? rotation.yaml?
}

take "$AUTHORITY" all/authority ca.crt ca.key next.crt? next.key? previous.crt? rotation.yaml?
before=$(rotation)
set -- --trust-domain "$TRUST_DOMAIN" --prefix "$PREFIX" --days "$DAYS" --rotate-authority "$ROTATE_AUTHORITY"
for holder in $HOLDERS; do
  name=${holder%%=*} rest=${holder#*=}
  take "${rest%%=*}" "all/$name" ca.crt tls.crt tls.key
  case $name in
    coordinator | worker | source | operator | observer) ;;
    *) set -- "$@" --also "$name:${rest#*=}" ;;
  esac
done
syctl -o table certs ensure all "$@" || fail "the files of all/authority are those of the secret $AUTHORITY"
# First, so that no holder has what a key signed that is lost. A run that ends before the last Secret leaves a time to
# come, with which the wait begins anew.
changed=
[ "$(rotation)" = "$before" ] || changed=yes
[ -z "$changed" ] || rotation | grep -q '^phase: settled' || since 9999-12-31T00:00:00Z
put_authority
for holder in $HOLDERS; do
  name=${holder%%=*} rest=${holder#*=}
  put "${rest%%=*}" kubernetes.io/tls "all/$name" ca.crt tls.crt tls.key
done
# The next phase waits from when the last Secret was written.
if [ -n "$changed" ]; then
  since "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
  put_authority
fi
