//! Files inside one folder that was opened once. Every path is resolved from the open folder, step by step (cap-std),
//! so that neither `..`, nor an absolute path, nor a link created meanwhile leads out of it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use jiff::Timestamp;

use super::ToolError;
use crate::foundation::base::{Digest, limits};
use crate::foundation::gate::{Budget, Category, Effect, Permit, Scope};

/// The files inside one folder.
#[derive(Debug)]
pub struct Files {
    dir: Dir,
    scope: Scope,
}

impl Files {
    /// Opens `folder`, whose files belong to `scope`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(folder: &Path, scope: Scope) -> std::io::Result<Self> {
        Ok(Self { dir: Dir::open_ambient_dir(folder, ambient_authority())?, scope })
    }

    /// The effect of reading `path`.
    pub fn reading(&self, path: &str) -> Effect {
        Effect::new(Category::Read, path).reading(self.scope)
    }

    /// The effect of writing this text to `path`.
    pub fn writing(&self, path: &str, text: &str) -> Effect {
        let arguments = format!("{path}\0{}", Digest::of(text));
        let cost = Budget { files: 1, diff_lines: text.lines().count() as u64, ..Budget::NOTHING };
        Effect::new(Category::Write, arguments).writing(self.scope).costing(cost)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If the permit is for another effect, the path leads out of the folder, or the file is too large or not UTF-8.
    pub fn read(&self, permit: Permit, path: &str, now: Timestamp) -> Result<String, ToolError> {
        let _spent = permit.spend(&self.reading(path), now)?;
        let most = limits::TOOL_FILE_BYTES_MAX;
        let mut text = String::new();
        let file = self.dir.open(path).map_err(io_error("read", path))?;
        file.take(most + 1).read_to_string(&mut text).map_err(io_error("read", path))?;
        if text.len() as u64 > most {
            return Err(ToolError::TooLarge { path: path.to_owned(), most });
        }
        Ok(text)
    }

    /// Writes a file atomically: to a temporary file that then replaces it. A link at the path is replaced, not
    /// followed.
    ///
    /// # Errors
    /// If the permit is for another effect, the path leads out of the folder, or writing fails.
    pub fn write(&self, permit: Permit, path: &str, text: &str, now: Timestamp) -> Result<Digest, ToolError> {
        let _spent = permit.spend(&self.writing(path, text), now)?;
        let temporary = format!("{path}.tmp");
        // A link at the temporary name must not be followed.
        match self.dir.remove_file(&temporary) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io_error("write", path)(error)),
            _ => {}
        }
        let mut options = cap_std::fs::OpenOptions::new();
        let mut file =
            self.dir.open_with(&temporary, options.write(true).create_new(true)).map_err(io_error("write", path))?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).map_err(io_error("write", path))?;
        self.dir.rename(&temporary, &self.dir, path).map_err(io_error("write", path))?;
        Ok(Digest::of(text))
    }
}

fn io_error(action: &'static str, path: &str) -> impl Fn(std::io::Error) -> ToolError {
    let path = path.to_owned();
    move |source| {
        let path = path.clone();
        // cap-std reports an escape from the folder with this kind.
        if source.kind() == ErrorKind::PermissionDenied {
            return ToolError::Outside { path, source };
        }
        ToolError::Io { action, path, source }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::tests::TestGate;
    use super::*;

    #[test]
    fn no_path_leads_out_of_the_folder() {
        let root = tempfile::tempdir().unwrap();
        let inside = root.path().join("inside");
        fs::create_dir(&inside).unwrap();
        fs::write(root.path().join("secret"), "s").unwrap();
        fs::write(inside.join("note"), "n").unwrap();
        symlink(root.path().join("secret"), inside.join("link")).unwrap();
        symlink(root.path(), inside.join("up")).unwrap();
        let files = Files::open(&inside, Scope::Notes).unwrap();
        let mut gate = TestGate::new();
        let mut read = |path: &str| files.read(gate.permit(&files.reading(path)), path, gate.now);
        assert_eq!(read("note").unwrap(), "n");
        for path in ["../secret", "/etc/passwd", "link", "up/secret", "up/inside/note", "./../inside/../secret"] {
            assert!(matches!(read(path), Err(ToolError::Outside { .. })), "{path}");
        }
        let mut write = |path: &str| files.write(gate.permit(&files.writing(path, "x")), path, "x", gate.now);
        for path in ["../new", "/tmp/loom-outside", "up/new"] {
            assert!(matches!(write(path), Err(ToolError::Outside { .. })), "{path}");
        }
        // A link at the path is replaced, not followed; the same for the temporary file.
        symlink(root.path().join("secret"), inside.join("note2.tmp")).unwrap();
        write("link").unwrap();
        write("note2").unwrap();
        assert_eq!(fs::read_to_string(root.path().join("secret")).unwrap(), "s");
        assert_eq!(fs::read_to_string(inside.join("link")).unwrap(), "x");
    }

    #[test]
    fn a_folder_replaced_by_a_link_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let inside = root.path().join("inside");
        fs::create_dir_all(inside.join("sub")).unwrap();
        fs::create_dir(root.path().join("elsewhere")).unwrap();
        let files = Files::open(&inside, Scope::Notes).unwrap();
        let mut gate = TestGate::new();
        let permit = gate.permit(&files.writing("sub/f", "x"));
        // Between the permit and the write.
        fs::remove_dir(inside.join("sub")).unwrap();
        symlink(root.path().join("elsewhere"), inside.join("sub")).unwrap();
        assert!(matches!(files.write(permit, "sub/f", "x", gate.now), Err(ToolError::Outside { .. })));
        assert_eq!(fs::read_dir(root.path().join("elsewhere")).unwrap().count(), 0);
    }

    #[test]
    fn a_permit_is_for_one_path_and_one_text() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path(), Scope::Notes).unwrap();
        let mut gate = TestGate::new();
        let permit = gate.permit(&files.writing("a", "x"));
        assert!(matches!(files.write(permit, "b", "x", gate.now), Err(ToolError::Refused(_))));
        let permit = gate.permit(&files.writing("a", "x"));
        assert!(matches!(files.write(permit, "a", "y", gate.now), Err(ToolError::Refused(_))));
        let permit = gate.permit(&files.reading("a"));
        assert!(matches!(files.write(permit, "a", "x", gate.now), Err(ToolError::Refused(_))));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
