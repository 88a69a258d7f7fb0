//! Drawing: a list of turns on the left, the turn on the right, keys at the bottom. Designed for at least 80 by 24.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph};

use super::page::{PROBABILITY_STYLES, Page};
use super::reader::{Mode, OpenTranscript, Reader};
use crate::simulation::rollout::Turn;

/// Columns of the list of turns.
const LIST: u16 = 26;
/// Columns of a phase's name in it.
const PHASE: usize = 12;
const KEYS: &str = "j/k turn  space/b scroll  g/G ends  h/l rollout  / search  ? help  q quit";
const HELP: [(&str, &str); 11] = [
    ("j k ↓ ↑", "next turn, previous turn"),
    ("space b", "scroll the turn down, up"),
    ("g G", "first turn, last turn"),
    ("l h → ←", "next rollout, previous rollout"),
    ("/", "search in messages"),
    ("n N", "next match, previous match"),
    ("t", "show or fold what models thought"),
    ("q", "quit"),
    ("", ""),
    ("▁…█", "prescribed intensities, 0 to 1"),
    ("! ×", "finding of a monitor; missing reply"),
];

pub(super) fn draw(frame: &mut Frame<'_>, reader: &mut Reader, color: bool) {
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
    let [list, page] = Layout::horizontal([Constraint::Length(LIST), Constraint::Min(20)]).areas(middle);
    let bar = Style::new().reversed();
    let (at, of) = reader.position();
    if let Some(open) = reader.current() {
        let position = if of > 1 { format!(" · {at} of {of}") } else { String::new() };
        frame.render_widget(Paragraph::new(format!(" {}{position}", open.title())).style(bar), top);
        frame.render_widget(Paragraph::new(turns(open, reader.turn, usize::from(list.height), color)), list);
    }
    draw_page(frame, page, reader, color);
    let below = match (&reader.mode, &reader.notice) {
        (Mode::Searching(text), _) => format!(" /{text}▏"),
        (_, Some(notice)) => format!(" {notice}"),
        _ => format!(" {KEYS}"),
    };
    frame.render_widget(Paragraph::new(below).style(bar), bottom);
    if reader.mode == Mode::Help {
        help(frame, color);
    }
}

fn draw_page(frame: &mut Frame<'_>, area: Rect, reader: &mut Reader, color: bool) {
    let block = Block::new().borders(Borders::LEFT).border_style(Style::new().dim());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
    let unfolds = reader.unfolds;
    let Some(mut page) = reader.current().and_then(|open| Page::of(open, reader.turn)) else {
        frame.render_widget(Paragraph::new("No turn is complete yet."), inner);
        return;
    };
    page.unfolds = unfolds;
    let mut lines = vec![Line::from(page.heading.clone())];
    lines.extend(page.lines(usize::from(inner.width), color));
    let height = usize::from(inner.height);
    let last = lines.len().saturating_sub(height);
    reader.height = height.saturating_sub(1).max(1);
    reader.scroll = reader.scroll.min(last);
    let more = last - reader.scroll;
    let mut shown: Vec<Line<'_>> = lines.into_iter().skip(reader.scroll).take(height).collect();
    if more > 0 {
        shown.pop();
        shown.push(Line::from(format!("▼ {} more lines", more + 1)).dim());
    }
    frame.render_widget(Paragraph::new(shown), inner);
}

/// The list of turns around the current one.
fn turns(open: &OpenTranscript, current: usize, height: usize, color: bool) -> Vec<Line<'static>> {
    let all = &open.transcript.turns;
    let first = current.saturating_sub(height / 2).min(all.len().saturating_sub(height));
    let rows = all.iter().enumerate().skip(first).take(height);
    rows.map(|(index, turn)| {
        let line = row(turn, color);
        if index == current { line.reversed() } else { line }
    })
    .collect()
}

fn row(turn: &Turn, color: bool) -> Line<'static> {
    let phase: String = turn.phase.as_deref().unwrap_or_default().chars().take(PHASE).collect();
    let bars: String = turn.intensities.iter().take(4).map(|one| block(one.value)).collect();
    let failed = [&turn.persona, &turn.interlocutor].iter().any(|utterance| utterance.failure.is_some());
    let (mark, shade) = match (failed, turn.monitor_events.is_empty()) {
        (true, _) => ("×", Color::Red),
        (false, false) => ("!", Color::Magenta),
        (false, true) => (" ", Color::Reset),
    };
    let style = if color { Style::new().fg(shade) } else { Style::new() };
    Line::from(vec![Span::raw(format!("{:>4} {phase:<PHASE$} {bars:<4} ", turn.index)), Span::styled(mark, style)])
}

/// A value in `[0, 1]` as a block.
fn block(value: f64) -> char {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    BLOCKS.get((value.clamp(0.0, 1.0) * 7.0).round() as usize).copied().unwrap_or(' ')
}

fn help(frame: &mut Frame<'_>, color: bool) {
    let mut lines: Vec<Line<'_>> = HELP.iter().map(|(keys, what)| Line::from(format!(" {keys:<9} {what}"))).collect();
    if color {
        let tokens = PROBABILITY_STYLES.iter().map(|(_, name, style)| Span::styled(format!("{name}  "), *style));
        lines.push(Line::from(std::iter::once(Span::raw(" tokens    ")).chain(tokens).collect::<Vec<_>>()));
    }
    let screen = frame.area();
    let (width, height) = (60.min(screen.width), (lines.len() as u16 + 2).min(screen.height));
    let area = Rect { x: (screen.width - width) / 2, y: (screen.height - height) / 2, width, height };
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" Keys ")), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent};

    use super::*;
    use crate::simulation::judge::measured::tests::transcript;

    fn reader() -> Reader {
        let long = "The alarms have a rhythm lately, bed nine, then bed four, then the corridor. ".repeat(12);
        let pairs = [("One.", "a"), (long.as_str(), "Tell me more."), ("", "Are you there?")];
        Reader::new(vec![OpenTranscript {
            file: "rollout_000.json".into(),
            transcript: transcript(&pairs),
            tokens: Vec::new(),
        }])
    }

    fn shown(reader: &mut Reader, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, reader, false)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_turn_fits_80_by_24_and_scrolls() {
        let mut reader = reader();
        reader.key(KeyEvent::from(KeyCode::Char('j')));
        insta::assert_snapshot!("view_80x24", shown(&mut reader, 80, 24));
        reader.key(KeyEvent::from(KeyCode::Char(' ')));
        assert!(shown(&mut reader, 80, 24).contains("Tell me more."));
    }

    #[test]
    fn a_missing_reply_is_marked() {
        let mut reader = reader();
        reader.key(KeyEvent::from(KeyCode::Char('G')));
        let shown = shown(&mut reader, 80, 24);
        assert!(shown.contains('×') && shown.contains("no reply: the model gave an empty reply twice"), "{shown}");
    }

    #[test]
    fn no_size_is_too_small() {
        let mut reader = reader();
        reader.key(KeyEvent::from(KeyCode::Char('?')));
        for (width, height) in [(1, 1), (5, 3), (30, 2), (200, 60)] {
            shown(&mut reader, width, height);
        }
    }
}
