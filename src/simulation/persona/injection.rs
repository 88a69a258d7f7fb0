//! At which turns the persona's model is given instructions: by a schedule over turn numbers, and at changes.

use serde::Serialize;

use super::Injection;

/// Which instructions the persona's model is given at a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InjectionKind {
    /// The state, with the rules of the whole run; at turn 0 after the opening.
    Full,
    /// The state, with the config's reminder.
    Reminder,
    /// The state, because the phase, a level or a topic changed.
    Change,
    /// Nothing: the previous instructions remain in effect.
    None,
}

impl Injection {
    /// What the schedule gives at `turn`, counted from 0: the full prompt at 0, f, 2f, …; a reminder at the other multiples of
    /// `reminder_frequency`; otherwise nothing. A frequency of 0 means never, except that turn 0 always gets the full prompt.
    pub fn at(&self, turn: usize) -> InjectionKind {
        let is_due = |every: usize| every != 0 && turn.is_multiple_of(every);
        if turn == 0 || is_due(self.frequency) {
            InjectionKind::Full
        } else if self.reminder_frequency.is_some_and(is_due) {
            InjectionKind::Reminder
        } else {
            InjectionKind::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::persona::Placement;

    /// The schedule of the first turns as a string: `F`ull, `r`eminder, `.` nothing.
    fn check(frequency: usize, reminder_frequency: Option<usize>, expected: &str) {
        let injection = Injection {
            frequency,
            reminder_frequency,
            reminder_template: String::new(),
            on_change: true,
            placement: Placement::Append,
        };
        let drawn: String = (0..expected.len())
            .map(|turn| match injection.at(turn) {
                InjectionKind::Full => 'F',
                InjectionKind::Reminder => 'r',
                InjectionKind::None | InjectionKind::Change => '.',
            })
            .collect();
        assert_eq!(drawn, expected, "every {frequency}, reminders {reminder_frequency:?}");
    }

    #[test]
    fn full_prompts_at_multiples_and_reminders_in_between() {
        check(5, Some(2), "F.r.rFr.r.F.r");
        check(3, Some(3), "F..F..F");
        check(4, None, "F...F...F");
        check(1, Some(2), "FFFF");
        check(100, Some(2), "F.r.r.r");
        check(0, None, "F....");
    }
}
