//! Writes a sweep's report.

use std::path::Path;

use super::figure::figure;
use super::report::SweepReport;
use super::{DeltaStudyError, at};
use crate::foundation::store::write_inside;

impl SweepReport {
    /// Writes `delta.json`, `delta.csv`, `positions.csv`, `layers.csv`, `delta.md` and `delta.svg` into `folder`.
    ///
    /// # Errors
    /// File system errors.
    pub fn write_to(&self, folder: &Path) -> Result<(), DeltaStudyError> {
        let mut json = serde_json::to_string_pretty(self)?;
        json.push('\n');
        let wrong = |error: crate::foundation::plot::PlotError| DeltaStudyError::Text {
            name: "delta.svg".to_owned(),
            why: error.to_string(),
        };
        let svg = figure(self).svg().map_err(wrong)?;
        let files = [
            ("delta.json", json),
            ("delta.csv", self.csv()),
            ("positions.csv", self.positions_csv()),
            ("layers.csv", self.layers_csv()),
            ("delta.md", self.table()),
            ("delta.svg", svg),
        ];
        for (name, text) in files {
            let path = folder.join(name);
            write_inside(&path, text.as_bytes()).map_err(at(&path))?;
        }
        Ok(())
    }
}
