"""Verifies a DSSE envelope with securesystemslib and the digests of its statement with hashlib."""

import base64
import hashlib
import json
import sys
from pathlib import Path

from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

run, file = Path(sys.argv[1]), Path(sys.argv[2])
data = json.loads(file.read_text())
keyid = data["signatures"][0]["keyid"]
head = json.loads((run / "receipts.head").read_text())
assert head["key"] == keyid, "the envelope is signed with another key than the receipts"
key = SSlibKey(keyid, "ed25519", "ed25519", {"public": keyid})
# JSON has the signature in base64; the class in hex.
accepted = Envelope.from_dict(json.loads(file.read_text())).verify([key], 1)
assert list(accepted) == [keyid], accepted
changed = dict(json.loads(file.read_text()), payloadType="application/json")
try:
    Envelope.from_dict(changed).verify([key], 1)
    sys.exit("a changed envelope was accepted")
except VerificationError:
    pass

statement = json.loads(base64.b64decode(data["payload"]))
for subject in statement["subject"]:
    digest = hashlib.sha256((run / subject["name"]).read_bytes()).hexdigest()
    assert digest == subject["digest"]["sha256"], subject["name"]
print(f"verified by securesystemslib: {len(statement['subject'])} files, {statement['predicateType']}")
