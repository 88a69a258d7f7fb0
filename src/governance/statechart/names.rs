//! Indexes and name resolution of a draft's states.

use super::chart::StateKind;
use super::text::Draft;

impl Draft<'_> {
    pub(super) fn parent(&self, index: usize) -> Option<usize> {
        self.states.get(index)?.parent
    }

    pub(super) fn name(&self, index: usize) -> &str {
        self.states.get(index).map_or("", |state| state.name.text)
    }

    pub(super) fn is_history(&self, index: usize) -> bool {
        self.states.get(index).is_some_and(|state| matches!(state.kind, StateKind::History { .. }))
    }

    pub(super) fn children(&self, of: usize) -> impl Iterator<Item = usize> {
        let states = self.states.iter().enumerate();
        states.filter(move |(_, state)| state.parent == Some(of)).map(|(index, _)| index)
    }

    pub(super) fn is_inside(&self, index: usize, outer: usize) -> bool {
        std::iter::successors(self.parent(index), |up| self.parent(*up)).any(|up| up == outer)
    }

    /// The names from the outermost state inwards, joined by dots; empty for the chart itself.
    pub(super) fn path(&self, index: usize) -> String {
        match self.parent(index) {
            None => String::new(),
            Some(0) => self.name(index).to_owned(),
            Some(parent) => format!("{}.{}", self.path(parent), self.name(index)),
        }
    }

    /// Resolves `path` relative to `at`: first among its descendants, then among its siblings, and so on outwards.
    pub(super) fn find(&self, at: usize, path: &str) -> Option<usize> {
        let child = |scope: usize, name: &str| self.children(scope).find(|child| self.name(*child) == name);
        let mut scopes = std::iter::successors(Some(at), |scope| self.parent(*scope));
        scopes.find_map(|scope| path.split('.').try_fold(scope, child))
    }
}
