#!/usr/bin/env bash
# Opens reports in headless Chromium: the console must stay empty, the keys must move between turns, and HTML in messages of
# a hostile persona must be escaped. With --picture it renews the README's pictures of the report.
#
# Needs `chromium` (or CHROMIUM=…) and a built `loom` (LOOM=…, else target/debug/loom).
set -euo pipefail
cd "$(dirname "$0")/.."

loom=${LOOM:-target/debug/loom}
chromium=${CHROMIUM:-chromium}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() { echo "check-report: $*" >&2; exit 1; }

# browse URL OPTION…: prints the browser's output; any message on the page's console is a failure.
browse() {
    local url=$1
    shift
    "$chromium" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$folder/profile" \
        --virtual-time-budget=8000 --enable-logging=stderr "$@" "$url" 2> "$folder/log"
    if grep -F CONSOLE "$folder/log"; then fail "the console of $url is not empty"; fi
}

data=tests/data/report
"$loom" run $data/anna.yaml --rollouts 4 --output "$folder/anna" > "$folder/told" 2>&1 || fail "$(cat "$folder/told")"
"$loom" run $data/hostile.yaml --persona-model scripted:$data/hostile.json --target scripted:$data/hostile.json \
    --output "$folder/hostile" > "$folder/told" 2>&1 || fail "$(cat "$folder/told")"

echo '== a page opens at the turn in its address'
browse "file://$folder/anna/report.html#r2t7" --dump-dom > "$folder/dom"
grep -q 'data-ready="true"' "$folder/dom" || fail "the script did not finish"
grep -q '<h3>Turn 7 · telling</h3>' "$folder/dom" || fail "turn 7 is not shown"
[ "$(grep -o 'class="t"' "$folder/dom" | wc -l)" -gt 5 ] || fail "no token is coloured"

echo '== the keys move between turns'
# A copy without the page's content security policy, so that another script can run.
sed 's/<meta http-equiv="Content-Security-Policy"[^>]*>//' "$folder/anna/report.html" > "$folder/keys.html"
cat >> "$folder/keys.html" << 'SCRIPT'
<script>
  const wait = setInterval(() => {
    if (document.documentElement.dataset.ready !== "true") return;
    clearInterval(wait);
    const seen = ["j", "j", "j", "k", "k"].map((key) => {
      document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      return document.querySelector("#turn h3").textContent.match(/\d+/)[0];
    });
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "f", bubbles: true }));
    seen.push(document.querySelector("#strip [aria-current]").className);
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "c", bubbles: true }));
    seen.push(document.querySelector("#heat").value);
    document.title = "keys " + seen.join(" ");
  }, 10);
</script>
SCRIPT
browse "file://$folder/keys.html" --dump-dom > "$folder/dom"
grep -q '<title>keys 1 2 3 2 1 flagged entropy</title>' "$folder/dom" || fail "$(grep '<title>' "$folder/dom")"

echo '== HTML in messages is escaped'
browse "file://$folder/hostile/report.html#r0t0" --dump-dom > "$folder/dom"
grep -q 'data-ready="true"' "$folder/dom" || fail "the script did not run to its end"
if grep -qE '<img|<svg onload|<b onclick|<script>alert' "$folder/dom"; then fail "the persona wrote into the page"; fi
grep -q '&lt;/script&gt;&lt;img src=x onerror=alert(5)&gt;' "$folder/dom" || fail "the message is not shown"

# picture NAME SECTION TURN HEIGHT: a screenshot of the page from a section on, with that height.
picture() {
    sed 's/<meta http-equiv="Content-Security-Policy"[^>]*>//' "$folder/anna/report.html" > "$folder/picture.html"
    cat >> "$folder/picture.html" << SCRIPT
<script>
  const wait = setInterval(() => {
    if (document.documentElement.dataset.ready !== "true") return;
    clearInterval(wait);
    // A screenshot begins at the top of the page, so remove everything above the section.
    const section = document.querySelector("$2");
    for (let above = section; above !== document.body; above = above.parentElement) {
      while (above.previousElementSibling) above.previousElementSibling.remove();
    }
    scrollTo(0, 0);
  }, 10);
</script>
SCRIPT
    browse "file://$folder/picture.html$3" --window-size="1200,$4" --screenshot="docs/images/$1"
    echo "docs/images/$1"
}

if [ "${1:-}" = --picture ]; then
    picture report.png header.top '' 1040
    picture report-curves.png '#curves' '' 1080
    picture report-turn.png '#conversations' '#r2t7' 520
fi
echo 'the report page works'
