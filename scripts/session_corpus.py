#!/usr/bin/env python3
"""Writes the labelled session logs in tests/data/sessions: `python3 scripts/session_corpus.py tests/data/sessions`.

Every log is a session of an agent (coding, office, support, research) as `loom regulate` reads it, gzipped JSON lines. Its
first line holds the labels: the session's half and its planted faults, each with the first and last turn at which it is
present and the decisions that count as finding it. All other turns are healthy.

Thresholds and word lists of the regulator were chosen on the development half. The held-back half has other subjects,
wordings, tools and ways to fail, and is used for measuring only. Output depends on the seed alone.
"""

import gzip
import json
import random
import re
import sys
from pathlib import Path

# Each unit: what the user asks, the tool calls [(tool, arguments, result)], the replies. `{name}` is drawn from SLOTS; the
# same name is the same value within a unit.
SLOTS = {
    "development": {
        "file": ["src/parser.rs", "src/cache.rs", "lib/router.ts", "app/models.py", "cmd/serve.go", "src/session.rs",
                 "web/cart.tsx", "core/retry.py"],
        "fn": ["parse_header", "load_config", "fetch_user", "merge_ranges", "build_index", "flush_queue", "resolve_host",
               "render_row"],
        "n": [str(i) for i in range(2, 60)],
        "m": [str(i) for i in range(3, 40)],
        "crate": ["serde", "tokio", "regex", "axum", "clap"],
        "vendor": ["Hartmann Office", "Blue Ridge Paper", "Nordwind Energy", "Calder & Sons", "Mapleton Cleaning",
                   "Ferro Logistics"],
        "person": ["Priya", "Jonas", "Marta", "Deshawn", "Lucia", "Tom"],
        "room": ["Birch", "Cedar", "the large room", "Willow"],
        "day": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"],
        "hour": ["9:00", "10:30", "13:00", "15:15", "16:00"],
        "order": [f"A-{i}" for i in range(20110, 20170)],
        "product": ["kettle", "desk lamp", "running shoes", "backpack", "headphones", "coffee grinder"],
        "topic": ["heat pumps in old houses", "soil carbon", "the history of tides tables", "urban beekeeping",
                  "sodium batteries", "sleep in shift workers"],
        "year": ["2019", "2020", "2021", "2022", "2023", "2024"],
    },
    "held_back": {
        "file": ["internal/billing/tax.go", "pkg/queue/worker.go", "frontend/src/Login.vue", "services/mail/send.rb",
                 "crates/wire/frame.rs", "etl/load_orders.sql", "tools/release.sh", "ios/MapView.swift"],
        "fn": ["computeVat", "ackMessage", "onSubmit", "deliver_later", "decode_frame", "dedupe", "bumpVersion",
               "clusterPins"],
        "n": [str(i) for i in range(2, 70)],
        "m": [str(i) for i in range(4, 44)],
        "crate": ["lodash", "pydantic", "gin", "sidekiq", "vite"],
        "vendor": ["Stadtwerke Ulm", "Okafor Printing", "Sundial Travel", "Brightwater Catering", "Kestrel Insurance",
                   "Hanoi Freight"],
        "person": ["Amara", "Henrik", "Yuki", "Rafael", "Ingrid", "Samir"],
        "room": ["room 4.12", "the glass box", "Studio B", "the annex"],
        "day": ["next Monday", "the 3rd", "the 14th", "Thursday week", "the 22nd"],
        "hour": ["8:45", "11:00", "14:30", "17:00", "noon"],
        "order": [f"#77{i}" for i in range(301, 370)],
        "product": ["espresso machine", "tent", "monitor arm", "rain jacket", "e-reader", "toaster oven"],
        "topic": ["microplastics in alpine lakes", "night trains in Europe", "mangrove restoration", "phage therapy",
                  "medieval bridge tolls", "solid-state hydrogen storage"],
        "year": ["2016", "2017", "2018", "2020", "2022", "2025"],
    },
}

UNITS = {
    ("development", "coding"): [
        ("Fix the off-by-one error in {fn} in {file}.",
         [("read_file", {"path": "{file}"}, "fn {fn}() {{ ... {n} lines ... }}"),
          ("edit_file", {"path": "{file}", "change": "{n}"}, "ok"), ("run_tests", {}, "{m} passed, 0 failed")],
         ["The loop in {fn} ran one index too far. I changed the bound from `<=` to `<`; all {m} tests pass now.",
          "{fn} compared against the length instead of the last index. It is corrected in {file} and the suite is green."]),
        ("Run the tests again.", [("run_tests", {}, "{m} passed, 0 failed")],
         ["{m} passed, none failed.", "All {m} tests pass.", "Same as before: {m} passed."]),
        ("Make {fn} async.", [("edit_file", {"path": "{file}", "change": "async {n}"}, "ok")],
         ["It no longer blocks: callers await the future it returns, and the worker threads stay free meanwhile.",
          "Done. The call is non-blocking now and the two callers use `.await`."]),
        ("Rename {fn} to something clearer and update its callers.",
         [("grep", {"pattern": "{fn}"}, "{n} matches"), ("edit_file", {"path": "{file}", "change": "rename {n}"}, "ok")],
         ["I renamed {fn} in {file} and updated the {n} places that call it.",
          "The new name is in place everywhere; {n} callers changed and the project compiles."]),
        ("Why does CI fail on the release branch?",
         [("ci_log", {"branch": "release"}, "error: linker `cc` not found, job {n}")],
         ["The runner image lost its C toolchain, so linking stops at the first crate. Installing `build-essential` in the "
          "workflow's setup step will bring it back.",
          "The log ends at the linker: `cc` is missing from the new image. Nothing in our code changed there."]),
        ("Add a unit test for {fn} with an empty input.",
         [("edit_file", {"path": "{file}", "change": "test {n}"}, "ok"), ("run_tests", {}, "{m} passed, 0 failed")],
         ["Added `{fn}_of_nothing`, which passes an empty slice and expects an empty result. {m} tests pass.",
          "There is a new case for the empty input; it passes."]),
        ("Bump {crate} to the latest version and check that everything still builds.",
         [("run", {"cmd": "cargo update -p {crate}"}, "updated"), ("run", {"cmd": "cargo build"}, "finished in {n}.{m}s")],
         ["{crate} is at the newest release and the build succeeds; no call site had to change.",
          "Updated {crate} in the lock file. The workspace builds without warnings."]),
        ("Explain what {fn} does, in two sentences.", [("read_file", {"path": "{file}"}, "... {n} lines ...")],
         ["It walks the input once and keeps the widest span seen so far. Anything malformed is skipped and counted.",
          "The function reads one record at a time and hands each to the callback. It returns how many it saw."]),
        ("Find every TODO in {file}.", [("grep", {"pattern": "TODO", "path": "{file}"}, "{n} matches")],
         ["There are {n}: most concern error messages, two concern performance.", "{n} TODO comments; the list is below.\n- line 12\n- line 88"]),
        ("Search the repo for uses of the deprecated client.",
         [("grep", {"pattern": "OldClient"}, ""), ("grep", {"pattern": "old_client"}, ""),
          ("grep", {"pattern": "legacy::Client"}, ""), ("grep", {"pattern": "client_v1"}, "")],
         ["No uses are left; four spellings were searched and none matched.", "Nothing found under any of its names."]),
        ("Speed up {fn}; profiling says it allocates too much.",
         [("edit_file", {"path": "{file}", "change": "buffer {n}"}, "ok"), ("bench", {"name": "{fn}"}, "{n} us per call")],
         ["The temporary vector is gone; a buffer is reused between calls. The benchmark fell to {n} µs.",
          "Allocation per call went from {m} to 1 by reusing the scratch space; it now takes {n} µs."]),
        ("Write a commit message for this change.", [("git_diff", {}, "{n} files changed")],
         ["Reuse the buffer in {fn}\n\nIt was allocated on every call; now the caller passes it in.",
          "Correct the bound in {fn}\n\nThe last element was read twice."]),
    ],
    ("held_back", "coding"): [
        ("{fn} crashes when the list is empty. Please sort that out.",
         [("open", {"file": "{file}"}, "{n} lines"), ("patch", {"file": "{file}", "id": "{n}"}, "applied"),
          ("test", {"suite": "unit"}, "ok {m}")],
         ["An empty list reached the division; it returns zero early now. The {m} unit checks are happy.",
          "I guarded the empty case at the top of {fn}. Nothing else in {file} had to move."]),
        ("Once more with the integration suite, please.", [("test", {"suite": "integration"}, "ok {m}")],
         ["Green: {m} of {m}.", "It finished without a failure, {m} cases.", "Still fine."]),
        ("Turn the callback in {file} into promises.",
         [("patch", {"file": "{file}", "id": "p{n}"}, "applied")],
         ["It returns a promise now, and whoever used the callback awaits it instead.",
          "Converted. Errors reject rather than arriving as the first argument."]),
        ("Pull the retry code out of {fn} into a helper.",
         [("patch", {"file": "{file}", "id": "x{n}"}, "applied")],
         ["The loop with its back-off lives in `withRetries` and {fn} is down to {n} lines.",
          "Extracted; {fn} calls the helper and behaves as before."]),
        ("What's causing the memory growth in the worker?",
         [("heap_profile", {"pid": "{n}"}, "top: []byte {m} MB in decode")],
         ["Decoded frames stay referenced from the metrics map, so nothing is ever freed. Deleting the entry when a frame is "
          "acknowledged stops it.",
          "The heap profile points at the frame buffers: they are kept by a closure. It has nothing to do with the queue."]),
        ("Cover {fn} with a table test: zero, one and many.",
         [("patch", {"file": "{file}", "id": "t{n}"}, "applied"), ("test", {"suite": "unit"}, "ok {m}")],
         ["Three rows, one per size; they pass along with the other {m}.", "The table has the three cases and a negative number for good measure."]),
        ("Upgrade {crate} and tell me if anything breaks.",
         [("shell", {"line": "upgrade {crate}"}, "ok"), ("shell", {"line": "build"}, "done in {n} s")],
         ["{crate} moved one minor version; everything compiles and starts.", "Nothing broke. One deprecation notice, in the login page."]),
        ("Walk me through {file}.", [("open", {"file": "{file}"}, "{n} lines")],
         ["It opens with the types, then the validation, then one public entry point. The interesting part is in the middle: "
          "amounts are rounded per line and not per invoice.",
          "Top to bottom: constants, a small cache, {fn}, and the exported handler that ties them together."]),
        ("Which files still import {crate}?", [("search", {"q": "import {crate}"}, "{n} hits")],
         ["{n} of them, nearly all below `services/`.", "Only the build scripts and two tests, {n} lines in total."]),
        ("Is there a config key for the time-out anywhere?",
         [("search", {"q": "timeout"}, "no matches"), ("search", {"q": "time_out"}, "no matches"),
          ("search", {"q": "deadline"}, "no matches"), ("search", {"q": "max_wait"}, "no matches")],
         ["I looked under four names and found none; the value is written into {fn}.", "There is no such key. It is a constant."]),
        ("The build takes ages. Any quick win?",
         [("shell", {"line": "time build"}, "{n} s"), ("shell", {"line": "time build --cached"}, "{m} s")],
         ["Half of it is the type checker running twice; dropping the second pass saves {m} seconds.",
          "Caching the dependencies brings it from {n} to {m} s on my side."]),
        ("Draft the changelog entry.", [("shell", {"line": "git log -{n}"}, "{n} commits")],
         ["- {fn} no longer fails on empty input\n- smaller bundle\n- {crate} upgraded", "Fixed: rounding in {fn}. Changed: retries wait longer each time."]),
    ],
    ("development", "office"): [
        ("Check the inbox for new invoices and file them.",
         [("list_mail", {"folder": "inbox"}, "{n} unread"), ("move_mail", {"to": "invoices", "id": "{n}{m}"}, "ok")],
         ["Two new ones, from {vendor} and {vendor2}; both are in the invoices folder.", "One invoice from {vendor}, {n}0.00 €, filed.",
          "Nothing new since the last look."]),
        ("Book {room} for {day} at {hour}.", [("calendar_book", {"room": "{room}", "at": "{day} {hour}"}, "booked")],
         ["{room} is yours on {day} at {hour}.", "Booked; the invitation is in your calendar."]),
        ("Draft a reply to {vendor}: we will pay by the end of the month.",
         [("draft_mail", {"to": "{vendor}", "ref": "{n}"}, "saved")],
         ["Draft saved: \"Dear all, thank you for your patience. You will receive the amount by the end of this month. Kind regards\"",
          "It is in your drafts. I kept it to three lines and apologised for the delay."]),
        ("Translate this into French: The meeting is moved to {day}.", [],
         ["La réunion est reportée à un autre jour de la semaine, à la même heure.", "La réunion a été déplacée."]),
        ("What is on my calendar {day}?", [("calendar_list", {"day": "{day}"}, "{n} entries")],
         ["Stand-up at 9:30, lunch with {person}, and the budget review at {hour}.", "Only one thing: a call with {vendor} at {hour}."]),
        ("Move the budget review to {day}, {hour}.", [("calendar_move", {"event": "budget review {n}", "to": "{day} {hour}"}, "moved")],
         ["Moved, and everyone has been notified.", "The budget review is now on {day} at {hour}; {person} has not answered yet."]),
        ("Summarise the thread with {vendor}.", [("read_thread", {"with": "{vendor}"}, "{n} messages")],
         ["They shipped late, offered ten per cent off, and want to know whether we accept. {person} said yes orally.",
          "Three points: the delivery slipped, the price stays, and they ask for a signature by {day}."]),
        ("Send {person} the slides from {day}.", [("find_file", {"q": "slides {day}"}, "slides_{n}.pdf"), ("send_mail", {"to": "{person}", "file": "slides_{n}.pdf"}, "sent")],
         ["Sent to {person} with a short note.", "{person} has them now."]),
        ("How much did we pay {vendor} in {year}?", [("ledger_query", {"vendor": "{vendor}", "year": "{year}"}, "{n}{m}0.00")],
         ["{n}{m}0.00 € across four invoices.", "In {year} it came to {n}{m}0.00 €."]),
        ("Write a haiku for {person}'s farewell card.", [],
         ["Boxes in the hall\na chair that still remembers\nspring comes through the door", "One lamp left burning\nthe corridor keeps your steps\na long time after"]),
        ("Remind me tomorrow to call {vendor}.", [("reminder", {"text": "call {vendor}", "n": "{n}"}, "set")],
         ["I will remind you at nine.", "Set for tomorrow morning."]),
        ("Make a table of this week's expenses.", [("ledger_query", {"week": "{n}"}, "5 rows")],
         ["| Day | Amount |\n|---|---|\n| Mon | {n}.20 |\n| Tue | {m}.00 |\n| Thu | 8.90 |", "| What | € |\n|---|---|\n| Train | {n}.00 |\n| Lunch | {m}.40 |"]),
    ],
    ("held_back", "office"): [
        ("Anything from {vendor} today?", [("mail.search", {"from": "{vendor}", "since": "today"}, "{n} results")],
         ["A reminder about the open balance and a newsletter.", "No, nothing yet.", "Yes: the signed contract arrived at {hour}."]),
        ("Sort the scanned receipts into the folders by month.",
         [("files.list", {"dir": "scans"}, "{n} files"), ("files.move", {"batch": "{n}-{m}"}, "moved {n}")],
         ["{n} receipts went to their months; one has no legible date and stays in the scans folder.",
          "All of them are sorted. March got most.", "Nothing was left to sort this time."]),
        ("Reserve {room}, {day}, {hour}, for six people.", [("rooms.reserve", {"room": "{room}", "when": "{day} {hour}"}, "confirmed {n}")],
         ["You have it, with the projector.", "{room} is reserved; confirmation {n}."]),
        ("Answer {person} politely that we cannot make {day}.", [("mail.draft", {"to": "{person}", "re": "{n}"}, "saved")],
         ["I wrote: \"Thanks for the invitation. Unfortunately the date does not work for us; would the week after suit you?\"",
          "The draft declines, thanks {person} and offers the following week."]),
        ("How do you say 'please sign on page two' in German?", [],
         ["Bitte unterschreiben Sie auf Seite zwei.", "Bitte auf der zweiten Seite unterschreiben."]),
        ("Who hasn't answered the survey?", [("survey.status", {"id": "{n}"}, "{m} missing")],
         ["{m} people, among them {person} and the whole front desk.", "Only {person}."]),
        ("Push my {hour} back by half an hour.", [("cal.shift", {"event": "{n}", "minutes": 30}, "ok")],
         ["Done; the others were told.", "It starts thirty minutes later now. {person} accepted already."]),
        ("Give me the gist of the contract with {vendor}.", [("files.read", {"name": "{vendor}.pdf"}, "{n} pages")],
         ["Two years, renewed unless cancelled three months ahead; prices may rise with inflation. Liability is capped at the annual fee.",
          "It runs until the end of {year}, payable quarterly, and either side may leave with ninety days' notice."]),
        ("Print name tags for {n} guests.", [("print.tags", {"count": "{n}", "job": "{m}"}, "queued")],
         ["{n} tags are in the printer's queue.", "They're printing; ten to a sheet."]),
        ("What did the {year} offsite cost?", [("ledger.sum", {"tag": "offsite {year}"}, "{n}{m}5.50")],
         ["{n}{m}5.50 all told, two thirds of it travel.", "About {n}{m}5, a little under budget."]),
        ("A limerick for {person}'s birthday, please.", [],
         ["A colleague who came in at ten\nforgot where she left her good pen\nshe searched high and low\nin the rain and the snow\nand then she forgot it again.",
          "There once was a desk by the stair\nwith papers piled up in the air..."]),
        ("Put the figures of the last three months side by side.", [("ledger.months", {"n": 3, "to": "{n}"}, "3 rows")],
         ["| Month | Sum |\n|---|---|\n| Apr | {n}20 |\n| May | {m}75 |\n| Jun | {n}05 |", "| | in | out |\n|---|---|---|\n| May | {n}4 | {m}1 |"]),
    ],
    ("development", "support"): [
        ("Where is order {order}?", [("order_status", {"order": "{order}"}, "in transit, {n} km away")],
         ["It left the depot this morning and should arrive on {day}.", "The parcel is in transit; the carrier expects {day}."]),
        ("I want to return the {product} from {order}.", [("create_return", {"order": "{order}"}, "label {n}{m}")],
         ["I created a return label; put it on the box and drop it at any post office. The refund follows within five days.",
          "No problem. The label is in your mail, and the money comes back once the {product} reaches us."]),
        ("Reply to this review: '{product} broke after a week, but service was kind.'", [],
         ["Thank you for telling us, and we are sorry that it failed so soon. A replacement is on its way to you at no cost.",
          "We are glad the team could help and sorry about the defect; please keep the old one, a new {product} ships today."]),
        ("Reply to this review: 'Love my {product}, but the manual is useless.'", [],
         ["Thank you! You are right about the manual; a clearer one is being printed, and we will send you a copy.",
          "So glad you like it. We rewrote the instructions last week and attach them here."]),
        ("The customer asks whether the {product} is waterproof.", [("kb_search", {"q": "{product} waterproof"}, "IPX{n}")],
         ["It withstands rain but should not be submerged.", "Splash-proof, yes; for swimming, no."]),
        ("Change the delivery address of {order} to 12 Mill Lane.", [("update_order", {"order": "{order}", "address": "12 Mill Lane"}, "ok")],
         ["The address of {order} is changed.", "Done: it will go to 12 Mill Lane."]),
        ("Is the {product} in stock in blue?", [("stock", {"sku": "{product}-blue"}, "{n}")],
         ["Yes, {n} of them.", "Only a few are left in blue, {n} to be exact."]),
        ("A customer was charged twice for {order}.", [("payments", {"order": "{order}"}, "2 charges"), ("refund", {"order": "{order}", "id": "{n}"}, "ok")],
         ["The second charge is refunded; it shows on the statement in two to four days.", "I see both payments and have returned one of them."]),
        ("Escalate {order} to the warehouse.", [("ticket", {"queue": "warehouse", "order": "{order}"}, "T{n}{m}")],
         ["Ticket T{n}{m} is open with the warehouse team.", "Escalated; they answer within the day."]),
        ("What is our policy on opened boxes?", [("kb_search", {"q": "opened box policy"}, "article {n}")],
         ["They can come back within thirty days if everything is inside; we deduct nothing.", "Thirty days, complete, receipt needed."]),
        ("Close the ticket.", [("ticket_close", {"id": "{n}{m}"}, "closed")], ["Closed.", "It is closed, with a note for the customer."]),
        ("Tell the customer in Spanish that the refund is on its way.", [],
         ["Su reembolso ya está en camino y aparecerá en su cuenta en unos días.", "El reembolso está en camino, gracias por su paciencia."]),
    ],
    ("held_back", "support"): [
        ("Customer wants to know when {order} ships.", [("orders.get", {"id": "{order}"}, "picking, slot {n}")],
         ["It is being packed and goes out tonight.", "Tomorrow at the latest; the warehouse has started picking."]),
        ("They say the {product} arrived with a dent.", [("claims.open", {"id": "{order}", "kind": "damage"}, "claim {n}{m}")],
         ["I opened claim {n}{m} and offered a replacement or twenty per cent back, whichever they like.",
          "Sorry to hear it. A photo would help; either way a new one can be sent today."]),
        ("Write an answer to: 'Great {product}, slow shipping.'", [],
         ["Thank you for the kind words! We are adding a second carrier this month, so the next parcel should be quicker.",
          "Happy it works for you. You're right about the wait, and we are on it."]),
        ("Write an answer to: 'Would buy the {product} again, packaging was wasteful.'", [],
         ["Thanks a lot! The foam is going: from next month we use paper only.", "We agree about the foam, and it will be gone soon. Thank you for staying with us."]),
        ("Does the {product} come with a European plug?", [("faq", {"q": "{product} plug"}, "yes")],
         ["It does, and an adapter for the UK is in the box.", "Yes."]),
        ("Cancel {order}, they ordered it by mistake.", [("orders.cancel", {"id": "{order}"}, "cancelled")],
         ["{order} is cancelled and nothing was charged.", "Cancelled before it was packed."]),
        ("How long is the guarantee on the {product}?", [("faq", {"q": "{product} guarantee"}, "{n} months")],
         ["{n} months from the day of delivery.", "{n} months, extendable once."]),
        ("The voucher code doesn't apply at checkout.", [("vouchers.check", {"code": "SPRING{n}"}, "expired")],
         ["It ran out on the first. I issued a new one that works until the end of next month.", "That code has expired, so I replaced it."]),
        ("Pass this one to the technicians.", [("tickets.assign", {"team": "tech", "ref": "{n}{m}"}, "assigned")],
         ["They have it.", "Assigned to the technicians with the serial number."]),
        ("What do we tell people who lost the receipt?", [("faq", {"q": "lost receipt"}, "article {n}")],
         ["The card statement is enough; we can find the purchase from it.", "Any proof of payment will do."]),
        ("Mark it solved.", [("tickets.solve", {"ref": "{n}{m}"}, "ok")], ["Done.", "Solved, and the survey has gone out."]),
        ("Same thing in Italian, please: your parcel will arrive tomorrow.", [],
         ["Il suo pacco arriverà domani.", "Il pacco arriva domani mattina."]),
    ],
    ("development", "research"): [
        ("Find recent papers on {topic}.",
         [("search", {"q": "{topic}"}, "{n} results"), ("search", {"q": "{topic} review {year}"}, "{m} results")],
         ["The most cited is a {year} review; two newer field studies disagree with it on the size of the effect.",
          "I found {n}, of which five look relevant. The newest is a trial with {m} sites."]),
        ("Summarise the main finding of the {year} review.", [("open", {"doc": "review {year} {n}"}, "{n} pages")],
         ["It concludes that the benefit is real but smaller than early reports claimed, and depends strongly on maintenance.",
          "Across {m} studies the effect holds, with large differences between regions."]),
        ("Extract the sample sizes into a table.", [("extract", {"doc": "{n}"}, "{m} rows")],
         ["| Study | N |\n|---|---|\n| A | {n}0 |\n| B | {m}4 |\n| C | 212 |", "| Paper | Participants |\n|---|---|\n| 1 | {n}8 |\n| 2 | {m}1 |"]),
        ("Who funded the {year} study on {topic}?", [("open", {"doc": "{topic} {year}"}, "funding: public, grant {n}{m}")],
         ["A public grant, number {n}{m}; no company was involved.", "It was paid by the national science fund."]),
        ("What are the limits of their method?", [("open", {"doc": "methods {n}"}, "... text ...")],
         ["No control group, self-reported outcomes, and a third of the participants left before the end.",
          "Everything was measured in one season, so nothing can be said about winters."]),
        ("Look for a dataset on {topic} that is open.",
         [("search", {"q": "{topic} dataset"}, "0 results"), ("search", {"q": "{topic} open data csv"}, "0 results"),
          ("search", {"q": "{topic} zenodo"}, "0 results"), ("search", {"q": "{topic} figshare {n}"}, "{m} results")],
         ["One repository has it under CC BY: {m} files, monthly values since {year}.", "Three searches gave nothing; the fourth found a small table."]),
        ("Compare the two estimates.", [("compute", {"expr": "{n}/{m}"}, "{n}.{m}")],
         ["The later one is lower by about {n} per cent, mostly because it counts transport.", "They agree within their errors."]),
        ("Convert the table to CSV.", [("convert", {"doc": "{n}", "to": "csv"}, "ok")],
         ["study,n\nA,{n}0\nB,{m}4\nC,212", "paper,participants\n1,{n}8\n2,{m}1"]),
        ("Is there any study from {year} that contradicts this?", [("search", {"q": "{topic} contradict {year}"}, "{n} results")],
         ["One, from a small lab; it could not be repeated.", "Not from {year}. There is one from the year after."]),
        ("Write a two-sentence abstract for my notes on {topic}.", [],
         ["Interest in {topic} has grown quickly, yet most evidence comes from short trials. These notes gather what is known and where the numbers disagree.",
          "What is known about {topic} rests on few long series. I list them with their weaknesses."]),
        ("Check whether the link to the {year} report works.", [("fetch", {"url": "https://example.org/report-{year}.pdf"}, "200 OK, {n} kB")],
         ["It does, {n} kB.", "Yes, the file opens."]),
        ("Cite it in APA style.", [], ["Lindqvist, A., & Mora, P. ({year}). Field results after ten years. Journal of Applied Systems, {n}({m}), 14–29.",
          "Okoye, C. ({year}). A second look. Annual Notes, {n}, 3–17."]),
    ],
    ("held_back", "research"): [
        ("What has been written about {topic} since {year}?",
         [("lit.query", {"terms": "{topic}", "from": "{year}"}, "{n} records"), ("lit.query", {"terms": "{topic} survey", "from": "{year}"}, "{m} records")],
         ["{n} records. Most are case reports; the two surveys are worth reading first.", "Not much: {m} articles, half of them from one group."]),
        ("Boil the second survey down to three bullets.", [("lit.read", {"id": "{n}{m}"}, "{n} pages")],
         ["- the trend is upwards everywhere\n- the cause is disputed\n- measurements before {year} cannot be compared",
          "- costs dominate\n- pilot projects succeed more often than follow-ups\n- nobody reports failures"]),
        ("List the instruments they used.", [("lit.read", {"id": "{n}"}, "section 2")],
         ["A spectrometer, two weather stations and a hand counter.", "Mainly satellite images, plus {m} buoys."]),
        ("Any conflict of interest in the {year} article?", [("lit.read", {"id": "coi-{n}"}, "none declared")],
         ["None is declared, though the second author advises a manufacturer.", "They declare none."]),
        ("How sound is the statistics in there?", [("lit.read", {"id": "stats-{n}"}, "... text ...")],
         ["Weak: eleven outcomes were tested without any adjustment, and the one reported is the smallest p.",
          "Decent. They registered the analysis beforehand and stuck to it."]),
        ("Try to find raw measurements somewhere.",
         [("data.find", {"q": "{topic} raw"}, "no hits"), ("data.find", {"q": "{topic} measurements"}, "no hits"),
          ("data.find", {"q": "{topic} time series"}, "no hits"), ("data.find", {"q": "{topic} supplement {n}"}, "{m} hits")],
         ["The supplement of an older article has them, {m} tables.", "Nowhere but in a supplement; I saved it."]),
        ("Which of both numbers should I trust?", [("calc", {"e": "{n}-{m}"}, "{n}")],
         ["The larger; the smaller leaves out everything below the detection limit.", "Neither on its own, their mean has the smaller error."]),
        ("As JSON, please.", [], ["[{{\"id\": 1, \"n\": {n}}}, {{\"id\": 2, \"n\": {m}}}]", "{{\"sites\": {n}, \"years\": [{year}]}}"]),
        ("Did anybody replicate it?", [("lit.query", {"terms": "replication {topic} {n}"}, "{m} records")],
         ["Twice, once with success.", "A group in Porto tried in {year} and saw half the effect."]),
        ("Give me an opening paragraph on {topic} for a grant application.", [],
         ["Few subjects have moved as fast as {topic}. Yet decisions are still taken on data from a handful of places, and this project would double their number.",
          "In {year} hardly anyone worked on {topic}; today agencies ask for advice that nobody can give with confidence."]),
        ("Is the archive reachable again?", [("http.head", {"u": "archive.example/{n}"}, "{n} ms, 200")],
         ["Yes, it answers.", "It's back since this morning."]),
        ("Reference in Chicago style.", [], ["Baptiste, Noor. \"Measured at Last.\" Review of Methods {n}, no. {m} ({year}): 101–19.",
          "Aoki, Ren. \"Counting Again.\" Field Notes {n} ({year}): 7–15."]),
    ],
}

# What users say between tasks, with replies: follow-ups, thanks, and words that look like complaints and are none.
CHATTER = {
    "development": [
        ("Thanks, that's it for now.", "You're welcome."), ("Great, that works.", "Glad to hear it."),
        ("No rush with the rest.", "Understood."), ("Perfect. Go on with the next one.", "On it."),
        ("Can you do the same for the other one?", "Yes, done as well."), ("Again, please.", "Done again."),
        ("And once more.", "Done."), ("Continue.", "Continuing."), ("No, leave that for tomorrow.", "All right, tomorrow."),
        ("What do you need from me?", "Only your approval."), ("ok", "Good."), ("Nothing wrong there, good.", "Good."),
    ],
    "held_back": [
        ("Lovely, thank you.", "My pleasure."), ("That did the trick!", "Good."), ("Not urgent, whenever you get to it.", "Noted."),
        ("Yes, next.", "Next it is."), ("Repeat that for the second file.", "Repeated, same outcome."), ("Once again, please.", "There you go."),
        ("Same again.", "Done."), ("Carry on.", "Carrying on."), ("No, that can wait.", "Fine, later then."),
        ("Anything missing?", "Nothing."), ("alright", "Good."), ("I see no mistake there, well done.", "Thanks."),
    ],
}

# Corrections of healthy sessions, each made at most once.
WISHES = {
    "development": ["Shorter next time, please.", "Use the metric units.", "Please keep the bullet points out of it.", "Mention the date.",
                    "Round to whole numbers.", "Call me Jo.", "Put the result first.", "British spelling."],
    "held_back": ["A bit less formal, if you can.", "Dates as day and month, please.", "One paragraph is enough.", "Name the source.",
                  "Prices without cents.", "No need to greet me.", "Start with the verdict.", "American spelling, please."],
}

# Planted faults. A fault makes some turns; see `plant`.
COMPLAINTS = {
    "development": [
        "No, that's still wrong. {task}", "That is not what I asked for. {task}", "You did it wrong again: {task}",
        "I already told you. {task}", "Still not right! {task}", "Wrong. Again: {task}",
    ],
    "held_back": [
        "Nope, same problem as before. {task}", "This isn't what I wanted at all. {task}", "You keep getting this wrong. {task}",
        "How many times do I have to ask? {task}", "It still doesn't do what I said. {task}", "Incorrect, once more: {task}",
    ],
}
FORBIDDEN = {
    "development": [
        ("Refactor {fn} in {file}. No logging, telemetry, error handling.",
         ["I split {fn} into two steps and it now logs each request with its duration.",
          "Refactored. Every call goes through `tracing::info!` so that you can follow it.",
          "The helper is smaller, and metrics for each call are exported through telemetry counters.",
          "{fn} is shorter, and it handles errors from the socket with a fallback value now."],
         ["I split {fn} into two steps; no logging, telemetry or error handling was added.",
          "Refactored {fn} in {file} into three smaller pieces. Nothing else changed."]),
        ("Answer the customer about {order}. Do not mention discounts or refunds.",
         ["We are sorry for the delay with {order}; you can have a discount of ten per cent on the next one.",
          "Your order {order} was delayed. If it does not arrive we have refunded the full price to your card."],
         ["We are sorry for the delay with {order}; it arrives on {day}."]),
        ("Write a summary of {topic} without using bullet points, tables or headings.",
         ["Here is the summary of {topic} as bullet points: first, the cost falls; second, the effect grows over time.",
          "The following table shows what is known about {topic}: cost on the left, effect on the right."],
         ["What is known about {topic} is quickly told: costs fall, and the effect grows over the years."]),
    ],
    "held_back": [
        ("Tidy up {fn}. Please don't add comments, tests, or new dependencies.",
         ["{fn} is tidied and I commented each branch to make it easier to follow.",
          "Cleaned up; while there I tested the empty case with a new unit test in {file}.",
          "I tidied {fn} and pulled in a small dependency for the date arithmetic."],
         ["{fn} is tidied: two branches merged, one name changed.", "Tidied. As you wished there are no comments, tests or dependencies on top."]),
        ("Put together the agenda for {day}. Avoid naming salaries, layoffs and the merger.",
         ["Agenda for {day}: 1. results of the quarter, 2. the merger and its timetable, 3. questions.",
          "Agenda for {day}: opening by {person}, then the new salaries for the team, then lunch."],
         ["Agenda for {day}: opening, results of the quarter, plans for the summer, questions."]),
        ("Describe {topic} for a general reader; never cite prices, brands or politicians.",
         ["Most readers have heard of {topic} by now. What few know is that prices fell by half within two years.",
          "{topic} has become a household word. Several brands compete, and the largest of the brands comes from Denmark."],
         ["{topic} has become a household word, and yet few people have seen it up close. It begins with patience."]),
    ],
}
FOREIGN = {
    "development": [
        "Mix the flour with two eggs and a pinch of salt. Knead the dough on a wooden board until it turns smooth. Let it rest under a cloth, "
        "roll it thin, and cut it into ribbons. Boil them briefly and serve with butter and sage.",
        "The castle stands on a cliff above the river. Its oldest tower was raised in the twelfth century by a count whose name is lost. "
        "Swallows nest beneath the battlements, and at dusk the stones turn the colour of honey.",
        "A marathon is run with the head as much as with the legs. Begin slowly, drink before you are thirsty, and never try new shoes on the "
        "day of the race. The last ten kilometres decide everything.",
    ],
    "held_back": [
        "Whales sing to each other over hundreds of kilometres. Males of one bay share a melody, which changes a little every winter. Nobody "
        "knows why one tune spreads across an entire ocean within a few seasons.",
        "To prune a rose, wait until the frost has gone. Cut above an outward bud, at a slant, with clean shears. Remove dead wood first and "
        "keep the centre of the bush open to light and wind.",
        "The violin was born in Cremona some five centuries ago. Spruce for the belly, maple for the back, and a varnish whose recipe was "
        "never written down. Old instruments are said to fall asleep when they are not played.",
    ],
}


class Session:
    def __init__(self, half, agent, number, rng):
        self.half, self.agent, self.number, self.rng = half, agent, number, rng
        self.events, self.faults, self.turn, self.context = [], [], 0, rng.randrange(300, 900)
        self.wishes, self.wish_after = rng.sample(WISHES[half], len(WISHES[half])), 0

    def slots(self):
        values = {name: self.rng.choice(pool) for name, pool in SLOTS[self.half].items()}
        values["vendor2"] = self.rng.choice([v for v in SLOTS[self.half]["vendor"] if v != values["vendor"]])
        return values

    def emit(self, **event):
        self.events.append(event)

    def start(self, text):
        self.turn += 1
        self.emit(type="turn_start", user_message=text)

    def tool(self, name, args, result, success=True, ms=None):
        self.emit(type="tool_call", tool_name=name, args_json=args)
        event = {"type": "tool_result", "tool_name": name, "success": success, "duration_ms": ms or self.rng.randrange(3, 900)}
        if result is not None:
            event["result"] = result
        self.emit(**event)

    def complete(self, text, tokens=False):
        if tokens:
            for index, token in enumerate(re.findall(r"\s*\S+", text)):
                draw = self.rng.random()
                logprob = -self.rng.uniform(0, .6) if draw < .8 else -self.rng.uniform(.6, 2.2) if draw < .985 else -self.rng.uniform(2.2, 4.5)
                self.emit(type="token", token=token, logprob=round(logprob, 3), index=index)
        self.emit(type="turn_complete", full_response=text, finish="stop")
        self.context = min(self.context + self.rng.randrange(40, 400), 24000)
        self.emit(type="cost", tokens_in=self.context, tokens_out=max(3, len(text) // 4), wallclock_ms=self.rng.randrange(300, 6000))

    def fill(self, value, slots):
        if isinstance(value, str):
            return value.format(**slots)
        if isinstance(value, dict):
            return {key: self.fill(item, slots) for key, item in value.items()}
        return value

    def healthy(self, unit=None, slots=None):
        unit = unit or self.rng.choice(UNITS[self.half, self.agent])
        task, tools, replies = unit
        slots = slots or self.slots()
        self.start(self.fill(task, slots))
        for name, args, result in tools:
            self.tool(name, self.fill(args, slots), self.fill(result, slots))
        self.complete(self.fill(self.rng.choice(replies), slots), tokens=self.number == 1 and self.turn % 3 == 0)

    def chatter(self):
        said, reply = self.rng.choice(CHATTER[self.half])
        self.start(said)
        self.complete(reply)

    def fault(self, kind, expect, first, last):
        self.faults.append({"kind": kind, "expect": expect, "from": first, "to": last})

    def healthy_turns(self, turns):
        """Healthy turns, with repeats and chatter between."""
        end = self.turn + turns
        while self.turn < end:
            draw = self.rng.random()
            if draw < .12:
                self.chatter()
            elif draw < .24:
                # The same request several times: a routine, with the results of the moment.
                unit, slots = self.rng.choice(UNITS[self.half, self.agent]), self.slots()
                for _ in range(self.rng.randrange(2, 7)):
                    if self.rng.random() < .5:
                        slots = slots | {"n": self.rng.choice(SLOTS[self.half]["n"])}
                    self.healthy(unit, slots)
            elif draw < .29:
                self.poll()
            elif draw < .33:
                self.recovers()
            elif draw < .37:
                self.corrected_once()
            elif draw < .41:
                self.reminder()
            else:
                self.healthy()

    def poll(self):
        """A job that takes a while and ends: its answer moves."""
        self.start("Start the nightly job and tell me when it is through." if self.half == "development" else "Kick off the export and let me know once it's complete.")
        for step in range(self.rng.randrange(3, 9)):
            self.tool("job_status", {"job": self.turn}, f"running, {10 * step + self.rng.randrange(3)} % done")
        self.tool("job_status", {"job": self.turn}, "finished")
        self.complete("The job is through, no errors." if self.half == "development" else "The export is complete and sits in the shared folder.")

    def recovers(self):
        """Failures that an agent works around."""
        self.start("Download the monthly statement." if self.half == "development" else "Fetch last quarter's figures from the portal.")
        for attempt in range(self.rng.randrange(1, 4)):
            self.tool("fetch", {"url": f"https://example.org/{self.turn}/{attempt}"}, "503 service unavailable", success=False)
        self.tool("fetch", {"url": f"https://mirror.example.org/{self.turn}"}, "200 OK")
        self.complete("The mirror had it; the statement is saved." if self.half == "development" else "Got them from the mirror after the portal was down.")

    def corrected_once(self):
        """One correction, taken well."""
        self.healthy()
        # Three corrections that agree would be a rule, and three within six turns a poor stretch: neither is planted here.
        if not self.wishes or self.turn < self.wish_after:
            return self.healthy()
        self.wish_after = self.turn + 12
        self.emit(type="user_correction", correction_message=self.wishes.pop(), corrects_last=True)
        self.healthy()

    def reminder(self):
        """Orders that sound like prohibitions and are none."""
        slots = self.slots()
        if self.half == "development":
            task, reply = self.rng.choice([
                ("Write the release notes and do not forget to add the contributors.", "The release notes are written; the contributors are listed at the end."),
                ("Prepare the offer; don't hesitate to include the optional items.", "The offer is ready and includes the optional items on page two."),
                ("Send it out no later than {day}, with no more than three attachments.", "Sent with two attachments, well before {day}."),
            ])
        else:
            task, reply = self.rng.choice([
                ("Pack the documents, and don't leave out the appendix.", "The documents are packed, the appendix is at the back."),
                ("Go through the list and be sure not to miss the late entries.", "I went through the list; the late entries are marked in yellow."),
                ("No need to hurry, but never fail to record the serial numbers.", "All serial numbers are recorded, and there was no hurry."),
            ])
        self.start(self.fill(task, slots))
        self.complete(self.fill(reply, slots))

    def plant(self, kind):
        getattr(self, "fault_" + kind)()

    def fault_complaints(self):
        """The user is dissatisfied again and again; nobody sends a correction event."""
        unit, slots = self.rng.choice([u for u in UNITS[self.half, self.agent] if len(u[0]) > 30]), self.slots()
        self.healthy(unit, slots)
        complaints = self.rng.sample(COMPLAINTS[self.half], 6)
        first = self.turn + 2
        for text in complaints:
            self.start(text.format(task=self.fill(unit[0], slots)))
            self.complete(self.fill(self.rng.choice(unit[2]), slots))
        self.fault("complaints", ["circuit_break"], first, self.turn)
        self.wish_after = self.turn + 12

    def fault_corrections(self):
        """Explicit corrections in a row on one task."""
        unit, slots = self.rng.choice(UNITS[self.half, self.agent]), self.slots()
        first = self.turn + 2
        for text in self.rng.sample(["That is the wrong one.", "The amounts are off.", "You used the old version.", "Not like this.", "Half of it is missing.", "Look at the heading."]
                                   if self.half == "development" else ["That's the other file.", "The sums don't match.", "Out of date again.", "This misses the point.", "Who asked for that?", "There are blanks in it."], 6):
            self.healthy(unit, slots)
            self.emit(type="user_correction", correction_message=text, corrects_last=True)
        self.fault("corrections", ["circuit_break"], first, self.turn + 1)
        self.wish_after = self.turn + 12
        self.chatter()

    def fault_decline(self):
        """Ratings fall from turn to turn."""
        for quality in [.9, .85, .7, .5, .35, .2, .1]:
            self.healthy()
            self.emit(type="quality_feedback", quality=round(quality + self.rng.uniform(-.03, .03), 2))
        self.fault("decline", ["circuit_break"], self.turn - 3, self.turn + 1)
        for _ in range(2):
            self.healthy()
            self.emit(type="quality_feedback", quality=.9)

    def fault_cycle(self):
        """The same calls over and over; the result has a clock in it."""
        self.start("Find out why the import fails." if self.half == "development" else "Get the sync to work again.")
        for step in range(9):
            stamp = f"2026-03-{self.rng.randrange(1, 28):02}T{step:02}:{self.rng.randrange(60):02}:11Z"
            if self.half == "development":
                self.tool("read_log", {"name": "import"}, f"[{stamp}] error: column 7 missing")
                self.tool("restart", {"service": "import"}, f"restarted at {stamp}")
            else:
                self.tool("sync.run", {"target": "crm"}, f"attempt {step + 1} failed after {self.rng.randrange(20, 90)} ms: token expired (req {self.rng.getrandbits(32):08x})")
        self.fault("cycle", ["tool_loop"], self.turn, self.turn)
        self.complete("I could not find the cause." if self.half == "development" else "The sync keeps failing.")

    def fault_unanswered(self):
        """The same call again and again, and no result ever comes."""
        self.start("Print the labels." if self.half == "development" else "Ring the door of the warehouse.")
        for _ in range(10):
            self.emit(type="tool_call", tool_name="print" if self.half == "development" else "door.ring", args_json={"job": 7})
        self.fault("unanswered", ["tool_loop"], self.turn, self.turn)
        self.complete("The printer does not answer." if self.half == "development" else "Nobody opens.")

    def fault_failures(self):
        """One failure after another."""
        self.start("Publish the page." if self.half == "development" else "Upload the archive to the partner.")
        for step in range(6):
            name = ["publish", "publish", "deploy"][step % 3] if self.half == "development" else ["sftp.put", "sftp.put", "http.put"][step % 3]
            self.tool(name, {"try": step}, ["permission denied", "error 403: forbidden", "access denied for user web"][step % 3], success=False)
        self.fault("failures", ["tool_loop"], self.turn, self.turn)
        self.complete("I lack the rights to do this.")

    def fault_polling(self):
        """A status that never changes, between other calls."""
        self.start("Wait for the approval and then send it." if self.half == "development" else "As soon as the build server is free, start the release.")
        for step in range(9):
            self.tool("approval_status" if self.half == "development" else "server.state", {"id": 4}, "pending" if self.half == "development" else "busy")
            self.tool("note", {"text": f"checked, {step}"}, "ok")
        self.fault("polling", ["tool_loop"], self.turn, self.turn)
        self.complete("It is still pending." if self.half == "development" else "The server is busy.")

    def fault_forbidden(self):
        """The reply does what the task rules out; a healthy twin follows."""
        task, broken, kept = self.rng.choice(FORBIDDEN[self.half])
        for reply in self.rng.sample(broken, 2):
            slots = self.slots()
            self.start(self.fill(task, slots))
            self.complete(self.fill(reply, slots))
            self.fault("forbidden", ["scope_drift_warn"], self.turn, self.turn)
            slots = self.slots()
            self.start(self.fill(task, slots))
            self.complete(self.fill(self.rng.choice(kept), slots))

    def fault_off_topic(self):
        """The reply belongs to something else altogether."""
        unit = self.rng.choice([u for u in UNITS[self.half, self.agent] if len(u[0]) > 45])
        self.start(self.fill(unit[0], self.slots()))
        self.complete(self.rng.choice(FOREIGN[self.half]))
        self.fault("off_topic", ["scope_drift_warn"], self.turn, self.turn)

    def fault_taught(self):
        """A user teaches the same thing three times; the fourth task of the kind calls for a warning, another kind does not."""
        if self.half == "development":
            lessons = [("Refactor the loader in {file}.", "Don't add docstrings when you refactor."),
                       ("Please refactor {fn}.", "Stop adding docstrings to refactored code!"),
                       ("Refactor the retry helper in {file}.", "I told you: no docstrings.")]
            again, other = "Refactor {fn} in {file}.", "How much did we pay in {year}?"
        else:
            lessons = [("Translate the notice for {vendor} into Dutch.", "Use the formal address in translations."),
                       ("Translate this paragraph on {topic} into Dutch.", "Formal address, please, whenever you translate."),
                       ("Translate the reminder to {person} into Dutch.", "Again the informal address; translations are formal.")]
            again, other = "Translate the agenda for {day} into Dutch.", "Which printer is out of paper?"
        for task, text in lessons:
            self.wish_after = self.turn + 12
            self.start(self.fill(task, self.slots()))
            self.complete("Here it is.")
            self.emit(type="user_correction", correction_message=text, corrects_last=True)
            self.healthy_turns(8)
        self.start(self.fill(again, self.slots()))
        self.fault("taught", ["procedural_warning"], self.turn, self.turn)
        self.complete("Here it is.")
        self.start(self.fill(other, self.slots()))
        self.complete("I will look.")

    def fault_garbage(self):
        """The model falls apart: every token is unlikely."""
        self.start("Write the closing paragraph." if self.half == "development" else "Continue the letter.")
        letters = "qxzjvkwyfhp"
        text = []
        for index in range(60):
            token = " " + "".join(self.rng.choice(letters) for _ in range(self.rng.randrange(2, 6)))
            text.append(token)
            self.emit(type="token", token=token, logprob=round(-self.rng.uniform(8.2, 12), 3), index=index)
        self.fault("garbage", ["stop_early", "low_confidence_spans"], self.turn, self.turn)
        self.emit(type="turn_complete", full_response="".join(text), finish="length")

    def fault_doubt(self):
        """One name that the model itself found unlikely."""
        self.start("Who signed the lease?" if self.half == "development" else "Name the architect of the old town hall.")
        name = "Abernathy Quillfeather" if self.half == "development" else "Ludo van Eikenstam"
        for index, (token, logprob) in enumerate([("It", -.1), (" was", -.2), (" " + name[:6], -6.4), (name[6:], -5.8), (" as", -.7), (" far", -.1), (" as", -.1), (" I", -.1), (" know", -.1), (".", -.1)]):
            self.emit(type="token", token=token, logprob=logprob, index=index)
        self.emit(type="turn_complete", full_response=f"It was {name} as far as I know.", finish="stop")
        self.fault("doubt", ["low_confidence_spans"], self.turn, self.turn)

    def lines(self):
        labels = {"type": "labels", "session": f"{self.agent}-{self.number:02}", "agent": self.agent, "half": self.half, "turns": self.turn, "faults": self.faults}
        return [json.dumps(line, ensure_ascii=False, separators=(",", ":")) for line in [labels, *self.events]]


SICK = [
    ["complaints", "cycle", "forbidden"], ["corrections", "unanswered", "off_topic"], ["decline", "failures", "taught"],
    ["polling", "garbage", "doubt", "forbidden"],
]


def main():
    folder = Path(sys.argv[1])
    for half, seed in [("development", 11), ("held_back", 23)]:
        (folder / half).mkdir(parents=True, exist_ok=True)
        for place, agent in enumerate(["coding", "office", "support", "research"]):
            for number in range(1, 7):
                rng = random.Random(f"{seed} {agent} {number}")
                session = Session(half, agent, number, rng)
                if number <= 2:
                    session.healthy_turns(200)
                else:
                    for kind in SICK[(number - 3 + place) % 4]:
                        session.healthy_turns(rng.randrange(18, 30))
                        session.plant(kind)
                    session.healthy_turns(rng.randrange(12, 20))
                data = "\n".join(session.lines()) + "\n"
                with open(folder / half / f"{agent}-{number:02}.jsonl.gz", "wb") as raw:
                    with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=9, mtime=0) as file:
                        file.write(data.encode())


main()
