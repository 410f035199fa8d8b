//! The blocks of code in the guide's pages, and the marks beside them.
//!
//! A mark is a comment of HTML, which no page shows:
//!
//! * `<!-- not run: REASON -->` before a block: it is compiled or parsed, and not run.
//! * `<!-- file: PATH -->` before a block: it is the content of that file, relative to the page.
//! * `<!-- profile: NAME -->` in a page: its programs in Python need that simulated GPU.
//!
//! A block within a comment is run, and not shown: it makes what the page takes for granted.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;

/// The languages of blocks. `text` is output, a drawing or a pattern of a command line; nothing checks it.
const LANGUAGES: [&str; 10] = ["c", "cmake", "cpp", "cuda", "dockerfile", "python", "rust", "sh", "text", "yaml"];

/// A fenced block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) page: PathBuf,
    /// Of the fence, from 1.
    pub(crate) line: usize,
    /// The first word of the fence's information, up to a comma.
    pub(crate) language: String,
    pub(crate) code: String,
    /// The reason for which it is not run.
    pub(crate) not_run: Option<String>,
    /// The file whose content it is.
    pub(crate) file: Option<String>,
}

impl Block {
    /// Where it is, for messages.
    pub(crate) fn place(&self, root: &Path) -> String {
        format!("{}:{}", self.page.strip_prefix(root).unwrap_or(&self.page).display(), self.line)
    }
}

/// The pages whose code is checked, in reading order.
pub(crate) fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut guide = Vec::new();
    for file in fs::read_dir(root.join("docs"))? {
        let path = file?.path();
        guide.extend(path.extension().is_some_and(|extension| extension == "md").then_some(path));
    }
    guide.sort();
    let others = ["examples/README.md", "ffi/python/README.md", "sim/README.md"].map(|page| root.join(page));
    Ok([vec![root.join("README.md")], guide, others.to_vec()].concat())
}

/// The blocks of all pages.
pub(crate) fn all(root: &Path) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    for page in pages(root)? {
        blocks.extend(of(&page, &fs::read_to_string(&page)?)?);
    }
    Ok(blocks)
}

/// The blocks of a page.
fn of(page: &Path, text: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut last = "";
    while let Some((number, line)) = lines.next() {
        let Some(information) = line.strip_prefix("```") else {
            if line.trim_start().starts_with("```") {
                let place = format!("{}:{}", page.display(), number + 1);
                return Err(format!("{place}: a fence within a list, which the guide does not render").into());
            }
            if !line.trim().is_empty() {
                last = line.trim();
            }
            continue;
        };
        let mut code = String::new();
        loop {
            let (_, line) = lines.next().ok_or_else(|| format!("{}:{}: no end", page.display(), number + 1))?;
            if line.starts_with("```") {
                break;
            }
            code += line;
            code.push('\n');
        }
        let mark = |name: &str| {
            let rest = last.strip_prefix("<!-- ")?.strip_suffix(" -->")?.strip_prefix(name)?;
            Some(rest.trim().to_owned())
        };
        blocks.push(Block {
            page: page.to_owned(),
            line: number + 1,
            language: information.split(',').next().unwrap_or_default().trim().to_owned(),
            code,
            not_run: mark("not run:"),
            file: mark("file:"),
        });
        last = "";
    }
    Ok(blocks)
}

/// A page without the comments that begin lines, whose blocks of code no reader shall see.
pub(crate) fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    let mut comment = false;
    for line in text.split_inclusive('\n') {
        comment |= line.trim_start().starts_with("<!--");
        if !comment {
            kept += line;
        }
        comment &= !line.contains("-->");
    }
    kept
}

/// Blocks that nothing checks: an unknown language, no reason for which they are not run, or not the file that they show.
pub(crate) fn faults(root: &Path) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for block in all(root)? {
        let place = block.place(root);
        if !LANGUAGES.contains(&block.language.as_str()) {
            wrong.push(format!("{place}: no known language, '{}'", block.language));
        }
        if block.not_run.as_ref().is_some_and(|reason| reason.len() < 10) {
            wrong.push(format!("{place}: no reason for which it is not run"));
        }
        match &block.file {
            Some(file) if fs::read_to_string(block.page.with_file_name(file)).is_ok_and(|text| text == block.code) => {}
            Some(file) => wrong.push(format!("{place}: is not {file}")),
            // Nothing here can run them.
            None if ["dockerfile", "yaml"].contains(&block.language.as_str()) && block.not_run.is_none() => {
                wrong.push(format!("{place}: neither a file's content nor marked as not run"));
            }
            None => {}
        }
    }
    Ok(wrong)
}

#[test]
fn every_block_has_a_language_and_is_checked() -> Result {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no parent folder")?;
    assert_eq!(faults(root)?, [""; 0]);
    Ok(())
}

#[test]
fn no_page_has_code_without_a_fence() -> Result {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no parent folder")?;
    let mut found = Vec::new();
    for page in pages(root)? {
        let text = fs::read_to_string(&page)?;
        let (mut code, mut blank, mut list) = (false, true, false);
        for (number, line) in text.lines().enumerate() {
            let fence = line.trim_start().starts_with("```");
            code ^= fence;
            // Within a list, four spaces continue an item.
            if !code && !fence && !line.trim().is_empty() {
                let item = line.trim_start();
                let begins =
                    item.starts_with("* ") || item.split_once(". ").is_some_and(|(n, _)| n.parse::<u8>().is_ok());
                list = begins || list && line.starts_with(' ');
                if blank && !list && line.starts_with("    ") {
                    found.push(format!("{}:{}", page.display(), number + 1));
                }
            }
            blank = line.trim().is_empty();
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    Ok(())
}

#[test]
fn programs_in_rust_are_among_the_doctests() -> Result {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no parent folder")?;
    let doctests =
        fs::read_to_string(root.join("examples/pages/lib.rs"))? + &fs::read_to_string(root.join("src/lib.rs"))?;
    for block in all(root)?.into_iter().filter(|block| block.language == "rust") {
        let page = block.page.strip_prefix(root)?.display().to_string();
        assert!(doctests.contains(&format!("../{page}\")")), "examples/pages/lib.rs lacks {page}");
    }
    Ok(())
}

#[test]
fn marks_are_read_and_blocks_within_lists_are_refused() -> Result {
    let text = "a\n\n<!-- not run: needs a GPU -->\n```sh\nls\n```\n\nb\n\n```rust,no_run\nfn main() {}\n```\n";
    let blocks = of(Path::new("page"), text)?;
    let found: Vec<_> = blocks
        .iter()
        .map(|block| (block.line, block.language.as_str(), block.code.as_str(), block.not_run.as_deref()))
        .collect();
    assert_eq!(found, [(4, "sh", "ls\n", Some("needs a GPU")), (10, "rust", "fn main() {}\n", None)]);
    let refused = of(Path::new("page"), "* a\n\n  ```sh\n  ls\n  ```\n").map(|blocks| blocks.len());
    assert!(refused.is_err_and(|error| error.to_string().starts_with("page:3: a fence within a list")));
    assert_eq!(without_comments("a\n<!-- b\n\n-->\n`<!-- c -->`\n<!-- d -->\n"), "a\n`<!-- c -->`\n");
    Ok(())
}
