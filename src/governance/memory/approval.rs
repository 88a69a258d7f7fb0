//! Approvals: a change of decisions, tasks, entities or the mode needs a person's token, or a policy that the person wrote
//! into the settings (`auto_approve` in `mind-mem.json`).
//!
//! A token is a message authentication code over one workspace, one exact effect and an expiry. An effect names the
//! version of a proposal and the change it makes, so a token for one version or one outcome is useless for another.
//! A caller without an [`ApprovalKey`] cannot make a token, and nothing else constructs an [`Approval`].

use jiff::{SignedDuration, Timestamp};

use super::mode::Mode;
use super::plan::effective_risk;
use super::proposal::{Proposal, RISKS};
use super::state::MemoryConfig;
use crate::foundation::gate::Effect;

/// How long a token is valid unless stated otherwise.
pub const TOKEN_MINUTES: i64 = 10;

/// Proof that a change was approved, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    by: String,
}

/// Why a change is not approved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// Neither a token nor a policy covers it.
    #[error(
        "{what} needs a person's approval: run `{command}` at a terminal and pass the token it prints with --token, or \
         list the risk under \"auto_approve\" in mind-mem.json"
    )]
    Missing {
        /// The change.
        what: String,
        /// The command that prints a token for it.
        command: String,
    },
    /// The token is not one for this change.
    #[error("this token is not for this change in this workspace: approve the present version")]
    Invalid,
    /// The token is too old.
    #[error("this token expired at {0}: approve the change again")]
    Expired(Timestamp),
    /// The person did not confirm.
    #[error("not approved: nothing was changed")]
    Declined,
}

impl Approval {
    /// What approved the change, for receipts.
    pub fn by(&self) -> &str {
        &self.by
    }

    /// The approval of `proposal` by the policy in the settings, if its risk is listed there. The risk is at least the
    /// one that its operations have, whatever the proposal declares.
    pub fn by_policy(config: &MemoryConfig, proposal: &Proposal) -> Option<Self> {
        let risk = effective_risk(proposal);
        let listed = RISKS.contains(&risk) && config.auto_approve.iter().any(|listed| listed == risk);
        listed.then(|| Self { by: format!("the policy in mind-mem.json: auto_approve lists {risk}") })
    }

    /// Changing to a lower mode, or repairing a damaged one by the lowest, takes no approval.
    pub fn for_lower_mode(from: Option<Mode>, to: Mode) -> Option<Self> {
        let lower = from.map_or(to == Mode::DetectOnly, |from| to <= from);
        lower.then(|| Self { by: "no approval needed: the mode is not raised".to_owned() })
    }
}

/// The secret that makes and checks tokens. It belongs to the user, not to the workspace.
pub struct ApprovalKey([u8; 32]);

impl std::fmt::Debug for ApprovalKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApprovalKey")
    }
}

impl ApprovalKey {
    /// The key derived from a user's secret.
    pub fn derive(secret: &[u8]) -> Self {
        Self(blake3::derive_key("loom 2026 memory approvals", secret))
    }

    /// A token for `effect` in `workspace` (its canonical path), valid for `minutes` from `now`.
    pub fn token(&self, workspace: &str, effect: &Effect, now: Timestamp, minutes: i64) -> String {
        let expires = now.saturating_add(SignedDuration::from_mins(minutes)).map_or(i64::MAX, Timestamp::as_second);
        format!("{expires:x}-{}", self.code(workspace, effect, expires))
    }

    /// The approval that `token` gives to `effect` in `workspace`.
    ///
    /// # Errors
    /// If the token is for something else, or too old.
    pub fn check(
        &self,
        token: &str,
        workspace: &str,
        effect: &Effect,
        now: Timestamp,
    ) -> Result<Approval, ApprovalError> {
        let (expires, code) = token.trim().split_once('-').ok_or(ApprovalError::Invalid)?;
        let expires = i64::from_str_radix(expires, 16).map_err(|_| ApprovalError::Invalid)?;
        let expected = self.code(workspace, effect, expires);
        // Digests are compared by content-independent time: their own digests, not their bytes.
        if blake3::hash(code.as_bytes()) != blake3::hash(expected.as_bytes()) {
            return Err(ApprovalError::Invalid);
        }
        let until = Timestamp::from_second(expires).map_err(|_| ApprovalError::Invalid)?;
        if until < now {
            return Err(ApprovalError::Expired(until));
        }
        Ok(Approval { by: format!("a person's token, valid until {until}") })
    }

    /// The approval of a person who confirmed at the terminal.
    pub fn confirmed_at_terminal(&self) -> Approval {
        Approval { by: "a person at the terminal".to_owned() }
    }

    fn code(&self, workspace: &str, effect: &Effect, expires: i64) -> String {
        let message = format!("{}:{workspace}\n{}\n{expires}", workspace.len(), effect.digest());
        let hash = blake3::keyed_hash(&self.0, message.as_bytes());
        hash.to_hex().chars().take(32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::foundation::gate::Category;
    use crate::governance::memory::proposal::{ProposalOp, ProposalOpKind};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_token_is_for_one_effect_in_one_workspace_until_it_expires() {
        let key = ApprovalKey::derive(b"ann");
        let effect = |what: &str| Effect::new(Category::MemoryApply, what);
        let token = key.token("/w", &effect("apply P-001"), at(0), 10);
        let check = |key: &ApprovalKey, token: &str, workspace, what, second| {
            key.check(token, workspace, &effect(what), at(second)).map(|approval| approval.by().to_owned())
        };
        assert!(check(&key, &token, "/w", "apply P-001", 599).unwrap().starts_with("a person's token"));
        assert_eq!(check(&key, &token, "/w", "apply P-001", 601), Err(ApprovalError::Expired(at(600))));
        assert_eq!(check(&key, &token, "/v", "apply P-001", 0), Err(ApprovalError::Invalid));
        assert_eq!(check(&key, &token, "/w", "apply P-002", 0), Err(ApprovalError::Invalid));
        assert_eq!(check(&ApprovalKey::derive(b"bot"), &token, "/w", "apply P-001", 0), Err(ApprovalError::Invalid));
        let (_, code) = token.split_once('-').unwrap();
        for forged in ["", "-", "1", &format!("7fffffffffff-{code}"), &format!("258-{}", &code[..31]), "258-"] {
            assert_eq!(check(&key, forged, "/w", "apply P-001", 0), Err(ApprovalError::Invalid), "{forged}");
        }
    }

    #[test]
    fn a_policy_goes_by_what_a_proposal_does_not_by_what_it_declares() {
        let config = |risks: &[&str]| MemoryConfig {
            auto_approve: risks.iter().map(|risk| (*risk).to_owned()).collect(),
            ..MemoryConfig::default()
        };
        let proposal = |risk: &str, kind, target: &str, status: &str, patch: &str| Proposal {
            risk: risk.to_owned(),
            target: target.to_owned(),
            ops: vec![ProposalOp {
                kind: Some(kind),
                target: target.to_owned(),
                status: status.to_owned(),
                patch: patch.to_owned(),
                ..ProposalOp::default()
            }],
            ..Proposal::default()
        };
        let approved = |risks: &[&str], proposal: &Proposal| Approval::by_policy(&config(risks), proposal).is_some();
        let task = proposal("low", ProposalOpKind::SetStatus, "T-20260220-001", "done", "");
        assert!(approved(&["low"], &task));
        assert!(!approved(&[], &task), "by default nothing is approved");
        assert!(!approved(&["lowest", ""], &task));
        let critical = Proposal { risk: "critical".to_owned(), ..task };
        assert!(!approved(&["low", "high"], &critical));
        let revoked = proposal("low", ProposalOpKind::SetStatus, "D-20260220-001", "revoked", "");
        assert!(!approved(&["low", "medium"], &revoked), "revoking a decision is never low");
        assert!(approved(&["high"], &revoked));
        let new =
            proposal("low", ProposalOpKind::AppendBlock, "D-20260220-002", "", "[D-20260220-002]\nStatus: active");
        assert!(!approved(&["low"], &new), "a new decision is at least medium");
        let smuggled =
            proposal("low", ProposalOpKind::AppendBlock, "T-001", "", "[T-001]\nTitle: x\n\n[D-001]\nStatus: active");
        assert!(!approved(&["low"], &smuggled), "a decision after a task is a decision");
    }

    #[test]
    fn lowering_the_mode_needs_no_approval_and_raising_does() {
        assert!(Approval::for_lower_mode(Some(Mode::Enforce), Mode::DetectOnly).is_some());
        assert!(Approval::for_lower_mode(Some(Mode::Propose), Mode::Propose).is_some());
        assert!(Approval::for_lower_mode(None, Mode::DetectOnly).is_some());
        assert!(Approval::for_lower_mode(Some(Mode::DetectOnly), Mode::Propose).is_none());
        assert!(Approval::for_lower_mode(Some(Mode::Propose), Mode::Enforce).is_none());
        assert!(Approval::for_lower_mode(None, Mode::Propose).is_none());
    }
}
