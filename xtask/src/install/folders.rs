//! Where an installation puts its files, and how it writes and removes them.

use std::collections::BTreeSet;
use std::fs;
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
        let prefix = variable("PREFIX").unwrap_or_else(|| "/usr/local".into());
        let libdir = variable("LIBDIR").unwrap_or_else(|| format!("{}/lib", prefix.trim_end_matches('/')));
        let destdir = variable("DESTDIR").unwrap_or_default();
        for (name, value) in [("PREFIX", &prefix), ("LIBDIR", &libdir), ("DESTDIR", &destdir)] {
            let absent = name == "DESTDIR" && value.is_empty();
            if !(absent || value.starts_with('/')) {
                return Err(format!("{name} must begin with a slash, unlike '{value}'").into());
            }
            if value.contains(['\n', '"', '\\', '$']) {
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
            let writable =
                fs::create_dir_all(&folder).is_ok() && fs::metadata(&folder).is_ok_and(|_| is_writable(&folder));
            if !writable {
                let remedy = "choose another PREFIX, or run this again as root (sudo make ...)";
                return Err(format!("{} is not writable: {remedy}", folder.display()).into());
            }
        }
        Ok(())
    }

    /// Writes a file anew, since a running program may have the old one mapped.
    pub(super) fn put(&self, path: &Path, content: impl AsRef<[u8]>, mode: u32) -> Result {
        let path = self.staged(path);
        let _ = fs::remove_file(&path);
        fs::write(&path, content)?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(mode))?)
    }

    pub(super) fn put_link(&self, path: &Path, target: &Path) -> Result {
        let path = self.staged(path);
        let _ = fs::remove_file(&path);
        Ok(symlink(target, path)?)
    }

    pub(super) fn remove(&self, files: &[PathBuf]) -> Result {
        let mut count = 0;
        for file in files.iter().map(|file| self.staged(file)).filter(|file| file.symlink_metadata().is_ok()) {
            fs::remove_file(&file)
                .map_err(|_| format!("{} cannot be removed: run this again as root (sudo make ...)", file.display()))?;
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

/// Whether a file can be created in a folder.
pub(super) fn is_writable(folder: &Path) -> bool {
    let probe = folder.join(format!(".vkgdr-{}", std::process::id()));
    fs::write(&probe, "").and_then(|()| fs::remove_file(probe)).is_ok()
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
    fn a_folder_is_searched_if_path_lists_it() {
        assert!(is_searched("/usr/local/bin".as_ref(), "/home/ada/bin:/usr/local/bin/:/bin"));
        assert!(!is_searched("/home/ada/.local/bin".as_ref(), "/usr/local/bin:/bin"));
    }
}
