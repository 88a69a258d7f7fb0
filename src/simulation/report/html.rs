//! The report as one HTML page that needs nothing else: no network, no other file. Figures and tables are in the page as
//! they stand; the conversations are packed into it, a rollout each, and unpacked when a reader asks for one.
//!
//! What models and people wrote is data everywhere: the template escapes it, the script only ever sets text, and the
//! page's own policy lets no other script run.

mod chart;
mod pack;
mod view;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};

use self::pack::{base64, pack};
use self::view::View;
use super::data::Report;
use super::load::{Loaded, ReportError};
use super::notation::{grouped, number};
use crate::simulation::judge::meaning;

const PAGE: &str = "page.html";
const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/reader.js");

impl Report {
    /// The page on this report and the conversations behind it.
    ///
    /// # Errors
    /// When it cannot be rendered.
    pub fn html(&self, loaded: &[Loaded]) -> Result<String, ReportError> {
        let packed: Vec<Value> = loaded
            .iter()
            .map(|loaded| {
                let packed = pack(loaded, self)?;
                Ok(context! { rollout => loaded.transcript.run.rollout, file => loaded.file.clone(), packed })
            })
            .collect::<Result<_, ReportError>>()?;
        let page = environment()?.get_template(PAGE)?.render(context! {
            report => Value::from(Serde(self)),
            view => Value::from(Serde(View::of(self))),
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
    // The template's name ends in `.html`, so whatever it prints is escaped.
    templates.add_template(PAGE, include_str!("html/page.html"))?;
    templates.add_filter("num", |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number));
    templates.add_filter("grouped", grouped);
    templates.add_filter("meaning", |id: &str| meaning(id));
    Ok(templates)
}

/// What a content security policy calls an inline style or script by.
fn hash(text: &str) -> String {
    use sha2::{Digest as _, Sha256};
    format!("sha256-{}", base64(&Sha256::digest(text.as_bytes())))
}
