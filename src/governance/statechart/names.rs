//! The states of a draft by their place in it, and which of them a name means.

use super::chart::Kind;
use super::text::Draft;

impl Draft<'_> {
    pub(super) fn parent(&self, index: usize) -> Option<usize> {
        self.states.get(index)?.parent
    }

    pub(super) fn name(&self, index: usize) -> &str {
        self.states.get(index).map_or("", |state| state.name.text)
    }

    pub(super) fn is_history(&self, index: usize) -> bool {
        self.states.get(index).is_some_and(|state| matches!(state.kind, Kind::History { .. }))
    }

    pub(super) fn children(&self, of: usize) -> impl Iterator<Item = usize> {
        let states = self.states.iter().enumerate();
        states.filter(move |(_, state)| state.parent == Some(of)).map(|(index, _)| index)
    }

    pub(super) fn is_inside(&self, index: usize, outer: usize) -> bool {
        std::iter::successors(self.parent(index), |up| self.parent(*up)).any(|up| up == outer)
    }

    /// The names from the outermost state inward, joined by dots; empty for the chart itself.
    pub(super) fn path(&self, index: usize) -> String {
        match self.parent(index) {
            None => String::new(),
            Some(0) => self.name(index).to_owned(),
            Some(parent) => format!("{}.{}", self.path(parent), self.name(index)),
        }
    }

    /// The state that `path` means where it is said at `at`: looked for inside that state, then beside it, and so on outward.
    pub(super) fn find(&self, at: usize, path: &str) -> Option<usize> {
        let child = |scope: usize, name: &str| self.children(scope).find(|child| self.name(*child) == name);
        let mut scopes = std::iter::successors(Some(at), |scope| self.parent(*scope));
        scopes.find_map(|scope| path.split('.').try_fold(scope, child))
    }
}
