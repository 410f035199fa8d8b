//! The project's pages, and the links between them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// The folders with pages, and the pages beside them.
const FOLDERS: [&str; 7] =
    [".", "docs", "examples", "ffi/python", "sim", "benches/results", "benches/results/simulated"];

/// All pages.
pub(crate) fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for folder in FOLDERS {
        for file in fs::read_dir(root.join(folder))? {
            let path = file?.path();
            pages.extend(path.extension().is_some_and(|extension| extension == "md").then_some(path));
        }
    }
    Ok(pages)
}

/// The targets of a page's links, those in code aside.
pub(crate) fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut code = false;
    for line in text.lines() {
        code ^= line.trim_start().starts_with("```");
        if code {
            continue;
        }
        // Every second part is within backquotes. The text of a link may be, its target is not.
        let plain: String = line.split('`').step_by(2).collect();
        found.extend(
            plain.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()),
        );
    }
    found
}

/// The anchors of a page's headings, as GitHub makes them.
#[cfg(test)]
fn anchors(text: &str) -> Vec<String> {
    let heading = |line: &str| {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        line.starts_with('#').then(|| kept.collect::<String>().replace(' ', "-"))
    };
    text.lines().filter_map(heading).collect()
}

#[test]
fn links_between_pages_lead_somewhere() -> Result {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no parent folder")?;
    let (mut dead, mut count) = (Vec::new(), 0);
    for page in pages(root)? {
        let text = fs::read_to_string(&page)?;
        for link in links(&text).into_iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            count += 1;
            let (path, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(path, anchor)| (path, Some(anchor)));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap_or(root).join(path) };
            let leads = match anchor {
                _ if !target.exists() => false,
                Some(anchor) if target.is_file() => {
                    anchors(&fs::read_to_string(&target)?).iter().any(|one| one == anchor)
                }
                _ => true,
            };
            dead.extend((!leads).then(|| format!("{}: {link}", page.display())));
        }
    }
    assert!(dead.is_empty() && count > 40, "{count} links, dead are {dead:#?}");
    Ok(())
}

#[test]
fn the_readme_is_one_page() -> Result {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no parent folder")?;
    let lines = fs::read_to_string(root.join("README.md"))?.lines().count();
    assert!(lines <= 120, "README.md has {lines} lines");
    Ok(())
}
