//! Where an installation puts its files, and how it writes and removes them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use crate::Result;
use crate::context::{say, variable};

/// The folders of an installation.
pub(super) struct Folders {
    pub(super) prefix: PathBuf,
    pub(super) libdir: PathBuf,
    pub(super) destdir: PathBuf,
}

impl Folders {
    pub(super) fn new() -> Result<Self> {
        Self::of(variable)
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let prefix = variable("PREFIX").unwrap_or_else(|| "/usr/local".into());
        let libdir = variable("LIBDIR").unwrap_or_else(|| format!("{}/lib", prefix.trim_end_matches('/')));
        let destdir = variable("DESTDIR").unwrap_or_default();
        for (name, value) in [("PREFIX", &prefix), ("LIBDIR", &libdir), ("DESTDIR", &destdir)] {
            let absent = name == "DESTDIR" && value.is_empty();
            if !(absent || value.starts_with('/')) {
                return Err(format!("{name} must begin with a slash, unlike '{value}'").into());
            }
            if value.contains(['\n', '"', '\'', '\\', '$']) {
                return Err(format!("{name} contains a newline, quote, backslash or dollar sign").into());
            }
        }
        Ok(Self { prefix: lexical(prefix.as_ref()), libdir: lexical(libdir.as_ref()), destdir: destdir.into() })
    }

    /// The staged path of an installed file.
    pub(super) fn staged(&self, path: &Path) -> PathBuf {
        if self.destdir.as_os_str().is_empty() {
            path.into()
        } else {
            self.destdir.join(path.strip_prefix("/").unwrap_or(path))
        }
    }

    /// Creates the folders of files.
    pub(super) fn create(&self, files: &[PathBuf]) -> Result {
        for folder in files.iter().filter_map(|file| file.parent()).collect::<BTreeSet<_>>() {
            let folder = self.staged(folder);
            fs::create_dir_all(&folder)
                .and_then(|()| try_writing(&folder))
                .map_err(|error| failure(&folder, "is not writable", &error, "choose another PREFIX, or "))?;
        }
        Ok(())
    }

    /// Writes a file.
    pub(super) fn put(&self, path: &Path, content: impl AsRef<[u8]>, mode: u32) -> Result {
        self.replace(path, |new| {
            fs::write(new, content)?;
            fs::set_permissions(new, fs::Permissions::from_mode(mode))
        })
    }

    pub(super) fn put_link(&self, path: &Path, target: &Path) -> Result {
        self.replace(path, |new| symlink(target, new))
    }

    /// A file is there at any time, the old one or the new one: it is made beside its place and renamed. A running program
    /// may have the old one mapped, and a full disk must not take it away.
    fn replace(&self, path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> Result {
        let path = self.staged(path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let new = path.with_file_name(format!(".{name}.{}", std::process::id()));
        let _ = fs::remove_file(&new);
        make(&new).and_then(|()| fs::rename(&new, &path)).map_err(|error| {
            let _ = fs::remove_file(&new);
            failure(&path, "cannot be written", &error, "")
        })?;
        Ok(())
    }

    pub(super) fn remove(&self, files: &[PathBuf]) -> Result {
        let mut count = 0;
        for file in files.iter().map(|file| self.staged(file)).filter(|file| file.symlink_metadata().is_ok()) {
            fs::remove_file(&file).map_err(|error| failure(&file, "cannot be removed", &error, ""))?;
            count += 1;
        }
        say(format!("{count} files removed from {}", self.staged(&self.prefix).display()));
        Ok(())
    }

    pub(super) fn list(&self, files: &[PathBuf]) {
        files.iter().for_each(|file| println!("{}", self.staged(file).display()));
    }

    /// The environment variable by which CMake finds the package, and its value. CMake searches `lib` below a prefix always,
    /// other folders only on some systems: `lib64` not on Debian (`find_package`, "Config Mode Search Procedure").
    pub(super) fn cmake_variable(&self) -> (&'static str, PathBuf) {
        if self.libdir == self.prefix.join("lib") {
            ("CMAKE_PREFIX_PATH", self.prefix.clone())
        } else {
            ("vkgdr_DIR", self.libdir.join("cmake/vkgdr"))
        }
    }

    /// Whether the dynamic linker's cache is this installation's to update.
    pub(super) fn is_staged(&self) -> bool {
        !self.destdir.as_os_str().is_empty()
    }
}

/// The message of an error, with the advice that helps where permission is missing; `otherwise` begins the advice.
fn failure(path: &Path, what: &str, error: &io::Error, otherwise: &str) -> String {
    let text = format!("{} {what}: {error}", path.display());
    if error.kind() == io::ErrorKind::PermissionDenied {
        return format!("{text}: {otherwise}run this again as root (sudo make ...)");
    }
    text
}

/// Fails unless a file can be created in a folder.
fn try_writing(folder: &Path) -> io::Result<()> {
    let probe = folder.join(format!(".vkgdr-{}", std::process::id()));
    fs::write(&probe, "").and_then(|()| fs::remove_file(probe))
}

/// Removes `.` and `..` from an absolute path, without following links.
pub(super) fn lexical(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(result.pop()),
            Component::CurDir => {}
            other => result.push(other),
        }
    }
    result
}

/// A path relative to a folder.
pub(super) fn relative(path: &Path, folder: &Path) -> PathBuf {
    let (mut to, mut from) = (path.components().peekable(), folder.components().peekable());
    while to.peek().is_some() && to.peek() == from.peek() {
        to.next();
        from.next();
    }
    from.map(|_| Component::ParentDir).chain(to).collect()
}

/// Whether a shell with this `PATH` finds the programs of a folder.
pub(super) fn is_searched(folder: &Path, path: &str) -> bool {
    std::env::split_paths(path).any(|searched| lexical(&searched) == folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalised_and_made_relative_without_the_file_system() {
        assert_eq!(lexical("/usr/./local//lib/../lib64/".as_ref()), Path::new("/usr/local/lib64"));
        assert_eq!(relative("/usr/local".as_ref(), "/usr/local/lib/pkgconfig".as_ref()), Path::new("../.."));
        assert_eq!(relative("/usr/lib/vkgdr-sim".as_ref(), "/usr/bin".as_ref()), Path::new("../lib/vkgdr-sim"));
    }

    #[test]
    fn cmake_is_led_to_the_package_where_it_does_not_search_the_folder_of_the_libraries() {
        let of = |libdir: &str| {
            let folders = Folders { prefix: "/opt/x".into(), libdir: libdir.into(), destdir: PathBuf::new() };
            folders.cmake_variable()
        };
        assert_eq!(of("/opt/x/lib"), ("CMAKE_PREFIX_PATH", "/opt/x".into()));
        assert_eq!(of("/opt/x/lib64"), ("vkgdr_DIR", "/opt/x/lib64/cmake/vkgdr".into()));
        assert_eq!(of("/srv/lib"), ("vkgdr_DIR", "/srv/lib/cmake/vkgdr".into()));
    }

    #[test]
    fn folders_that_a_shells_quotes_would_not_keep_are_refused() {
        let of = |prefix: &str| Folders::of(|name| (name == "PREFIX").then(|| prefix.to_owned()));
        assert!(of("/opt/my tools").is_ok());
        for prefix in ["/opt/ada's", "/opt/\"x\"", "/opt/$HOME", "/opt\\x", "/opt\n", "opt"] {
            assert!(of(prefix).is_err(), "{prefix}");
        }
    }

    #[test]
    fn a_file_is_replaced_only_by_one_that_was_written() -> Result {
        let temporary = xshell::Shell::new()?.create_temp_dir()?;
        let folders = Folders { prefix: "/".into(), libdir: "/lib".into(), destdir: temporary.path().into() };
        let file = Path::new("/file");
        folders.put(file, "old", 0o644)?;
        let full = folders.replace(file, |new| fs::write(new, "n").and(Err(io::ErrorKind::StorageFull.into())));
        let said = full.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(said.contains("/file cannot be written: ") && !said.contains("root"), "{said}");
        assert_eq!(fs::read_to_string(folders.staged(file))?, "old");
        folders.put(file, "new", 0o755)?;
        assert_eq!(fs::read_to_string(folders.staged(file))?, "new");
        folders.put_link(file, "target".as_ref())?;
        assert_eq!(fs::read_link(folders.staged(file))?, Path::new("target"));
        assert_eq!(fs::read_dir(temporary.path())?.count(), 1);
        Ok(())
    }

    #[test]
    fn root_is_advised_only_where_permission_is_missing() {
        let said = |kind: io::ErrorKind| failure("/x".as_ref(), "cannot be removed", &kind.into(), "");
        assert!(said(io::ErrorKind::PermissionDenied).ends_with("denied: run this again as root (sudo make ...)"));
        assert!(said(io::ErrorKind::IsADirectory).starts_with("/x cannot be removed: "));
        assert!(!said(io::ErrorKind::IsADirectory).contains("root"));
    }

    #[test]
    fn a_folder_is_searched_if_path_lists_it() {
        assert!(is_searched("/usr/local/bin".as_ref(), "/home/ada/bin:/usr/local/bin/:/bin"));
        assert!(!is_searched("/home/ada/.local/bin".as_ref(), "/usr/local/bin:/bin"));
    }
}
