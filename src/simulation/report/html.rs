//! The report as one self-contained HTML page: no network, no other file. Figures and tables are plain HTML and SVG; the
//! conversations are embedded compressed, one per rollout, and decompressed when they are selected.
//!
//! Texts of models and users are data: the template escapes them, the script only sets text nodes, and the page's content
//! security policy allows no other script.

mod chart;
mod pack;
mod view;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};

use self::pack::{base64, pack};
use self::view::PageView;
use super::data::Report;
use super::format::{grouped, number};
use super::load::{LoadedRollout, ReportError};
use super::markdown::VerdictView;
use crate::simulation::judge::info;

const PAGE: &str = "page.html";
const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/reader.js");

impl Report {
    /// The page with this report and its conversations.
    ///
    /// # Errors
    /// If the template fails.
    pub fn html(&self, loaded: &[LoadedRollout]) -> Result<String, ReportError> {
        let packed: Vec<Value> = loaded
            .iter()
            .map(|loaded| {
                let packed = pack(loaded, self)?;
                Ok(context! { rollout => loaded.transcript.run.rollout, file => loaded.file.clone(), packed })
            })
            .collect::<Result<_, ReportError>>()?;
        let page = environment()?.get_template(PAGE)?.render(context! {
            report => Value::from(Serde(self)),
            view => Value::from(Serde(PageView::of(self))),
            verdict => Value::from(Serde(VerdictView::of(self))),
            monitors => self.monitors_line(),
            told => self.told_line(),
            panels => Value::from(Serde(chart::panels(self))),
            packed,
            style => Value::from_safe_string(STYLE.to_owned()),
            script => Value::from_safe_string(SCRIPT.to_owned()),
            style_hash => hash(STYLE),
            script_hash => hash(SCRIPT),
        })?;
        Ok(page)
    }
}

fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut templates = Environment::new();
    templates.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    templates.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    // The template's name ends in `.html`, so minijinja escapes all output.
    templates.add_template(PAGE, include_str!("html/page.html"))?;
    templates.add_filter("num", |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number));
    templates.add_filter("grouped", grouped);
    templates.add_filter("meaning", |id: &str| info(id).map(|info| info.meaning));
    Ok(templates)
}

/// The hash by which the content security policy allows an inline style or script.
fn hash(text: &str) -> String {
    use sha2::{Digest as _, Sha256};
    format!("sha256-{}", base64(&Sha256::digest(text.as_bytes())))
}
