//! When the persona is reminded of who it is: a pure schedule over turns.

use serde::Serialize;

use super::Injection;

/// What of the scaffolding is given at a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InjectionKind {
    /// The whole prompt.
    Full,
    /// The short reminder.
    Reminder,
    /// Nothing: the last prompt stands.
    None,
}

impl Injection {
    /// What is given at `turn`, counted from 0: the whole at 0, f, 2f, …; a reminder at the other multiples of
    /// `reminder_frequency`; else nothing. A frequency of 0 is never, save that turn 0 is always whole.
    pub fn at(&self, turn: usize) -> InjectionKind {
        let falls_on = |every: usize| every != 0 && turn.is_multiple_of(every);
        if turn == 0 || falls_on(self.frequency) {
            InjectionKind::Full
        } else if self.reminder_frequency.is_some_and(falls_on) {
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
        let injection =
            Injection { frequency, reminder_frequency, reminder_template: String::new(), placement: Placement::Append };
        let drawn: String = (0..expected.len())
            .map(|turn| match injection.at(turn) {
                InjectionKind::Full => 'F',
                InjectionKind::Reminder => 'r',
                InjectionKind::None => '.',
            })
            .collect();
        assert_eq!(drawn, expected, "every {frequency}, reminders {reminder_frequency:?}");
    }

    #[test]
    fn the_whole_comes_at_multiples_and_reminders_between() {
        check(5, Some(2), "F.r.rFr.r.F.r");
        check(3, Some(3), "F..F..F");
        check(4, None, "F...F...F");
        check(1, Some(2), "FFFF");
        check(100, Some(2), "F.r.r.r");
        check(0, None, "F....");
    }
}
