//! A conversation for the page's script: JSON, deflated, in Base64. Each token is three small numbers; its text is cut
//! from the message by its length.

use std::collections::BTreeMap;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;

use super::super::data::Report;
use super::super::load::{LoadedRollout, ReportError};
use super::super::summary::confidence;
use crate::governance::regulator::Decision;
use crate::simulation::persona::Speaker;
use crate::simulation::rollout::{TokenLine, Turn, Utterance};

#[derive(Serialize)]
struct Conversation<'a> {
    opening: Option<&'a str>,
    persona_first: bool,
    dimensions: &'a [String],
    turns: Vec<PackedTurn<'a>>,
}

#[derive(Serialize)]
struct PackedTurn<'a> {
    turn: usize,
    phase: Option<&'a str>,
    intensities: Vec<f64>,
    /// What the newest instruction names beside what is prescribed.
    told: Option<String>,
    told_differs: bool,
    confidence: Option<f64>,
    entropy: Option<f64>,
    why: &'a [String],
    /// What the persona's model was given in this turn.
    instructions: &'a [String],
    /// The regulator's decisions other than to continue.
    regulator: Vec<&'static str>,
    /// The gains on Δ, as text.
    gains: Option<String>,
    findings: Vec<Finding<'a>>,
    persona: Message<'a>,
    other: Message<'a>,
}

#[derive(Serialize)]
struct Finding<'a> {
    rule: &'a str,
    detail: &'a str,
    accepted: bool,
}

#[derive(Serialize)]
struct Message<'a> {
    text: &'a str,
    model: Option<&'a str>,
    failure: Option<&'a str>,
    strategy: Option<&'a str>,
    drafts: usize,
    rejected: Vec<&'a str>,
    /// What the model thought before it, and how much of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    thought: Option<PackedThought<'a>>,
    tokens: Option<Tokens>,
}

#[derive(Serialize)]
struct PackedThought<'a> {
    text: &'a str,
    tokens: usize,
    confidence: Option<f64>,
}

/// Columns of equal length; hundredths of a nat, −1 for unknown values.
#[derive(Serialize)]
struct Tokens {
    /// Lengths of the tokens' texts in UTF-16 code units, as JavaScript counts them.
    cut: Vec<usize>,
    surprise: Vec<i64>,
    entropy: Vec<i64>,
}

/// Packs the conversation of `loaded`.
pub(super) fn pack(loaded: &LoadedRollout, report: &Report) -> Result<String, ReportError> {
    let transcript = &loaded.transcript;
    let rollout = transcript.run.rollout;
    let flags: BTreeMap<usize, &[String]> = report
        .flags
        .iter()
        .filter(|flag| flag.rollout == rollout)
        .map(|flag| (flag.turn, flag.why.as_slice()))
        .collect();
    let lines: BTreeMap<(usize, bool), &TokenLine> =
        loaded.tokens.iter().map(|line| ((line.turn, line.speaker == Speaker::Persona), line)).collect();
    let turns = transcript.turns.iter().map(|turn| {
        let why = flags.get(&turn.index).copied().unwrap_or_default();
        packed_turn(turn, why, |persona| lines.get(&(turn.index, persona)).copied())
    });
    let conversation = Conversation {
        opening: transcript.opening.words.as_deref(),
        persona_first: transcript.opening.first_speaker == Speaker::Persona,
        dimensions: &report.dimensions,
        turns: turns.collect(),
    };
    let json = serde_json::to_vec(&conversation)?;
    let mut deflated = DeflateEncoder::new(Vec::new(), Compression::best());
    let written = deflated.write_all(&json).and_then(|()| deflated.finish());
    let bytes = written.map_err(|source| ReportError::Io { path: loaded.file.clone().into(), source })?;
    Ok(base64(&bytes))
}

fn packed_turn<'a, 'l>(
    turn: &'a Turn,
    why: &'a [String],
    tokens: impl Fn(bool) -> Option<&'l TokenLine>,
) -> PackedTurn<'a> {
    let findings = turn.monitor_events.iter().map(|event| Finding {
        rule: &event.finding.rule,
        detail: &event.finding.detail,
        accepted: event.action.is_final(),
    });
    let decisions = turn.persona.regulator.decisions.iter().map(|ranked| &ranked.decision);
    PackedTurn {
        turn: turn.index,
        phase: turn.phase.as_deref(),
        intensities: turn.intensities.iter().map(|intensity| intensity.value).collect(),
        told: turn.told_beside_prescribed(),
        told_differs: turn.told_differs() == Some(true),
        confidence: confidence(&turn.persona),
        entropy: turn.persona.tokens.entropy_mean,
        why,
        instructions: &turn.injected,
        regulator: decisions.filter(|decision| **decision != Decision::Continue).map(Decision::kind).collect(),
        gains: turn.gains.as_ref().and_then(|gains| serde_json::to_string(gains).ok()),
        findings: findings.collect(),
        persona: message(&turn.persona, tokens(true)),
        other: message(&turn.interlocutor, tokens(false)),
    }
}

fn message<'a>(utterance: &'a Utterance, line: Option<&TokenLine>) -> Message<'a> {
    Message {
        text: &utterance.content,
        model: utterance.model.as_deref(),
        failure: utterance.failure.as_ref().map(|failure| failure.why.as_str()),
        strategy: utterance.adversary.as_ref().map(|adversary| adversary.strategy.as_str()),
        drafts: utterance.attempts.len() + 1,
        rejected: utterance
            .attempts
            .iter()
            .map(|attempt| attempt.content.as_str())
            .filter(|text| !text.is_empty())
            .collect(),
        thought: utterance.thought.as_ref().map(|thought| PackedThought {
            text: thought.content.trim(),
            tokens: thought.tokens.count,
            confidence: thought.confidence,
        }),
        // Tokens of another text would colour the wrong words.
        tokens: line.filter(|line| line.text.concat() == utterance.content).map(tokens),
    }
}

fn tokens(line: &TokenLine) -> Tokens {
    let hundredths = |value: &Option<f32>, sign: f32| value.map_or(-1, |value| (sign * value * 100.0).round() as i64);
    Tokens {
        cut: line.text.iter().map(|text| text.encode_utf16().count()).collect(),
        surprise: line.logprob.iter().map(|logprob| hundredths(logprob, -1.0)).collect(),
        entropy: line.entropy.iter().map(|entropy| hundredths(entropy, 1.0)).collect(),
    }
}

/// Standard Base64 with padding (RFC 4648, section 4).
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |word, at| word << 8 | u32::from(group.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let digit = ALPHABET.get((word >> (18 - 6 * at) & 63) as usize).copied().unwrap_or(b'=');
            text.push(if at <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 4648, section 10.
    #[test]
    fn base64_is_the_rfcs() {
        let check = |bytes: &str, text: &str| assert_eq!(base64(bytes.as_bytes()), text);
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            check(bytes, text);
        }
    }
}
