//! The page of the C interface: the declarations of `vkgdr.h` by subject, each with its comment.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::Result;

/// The subjects, with the beginnings of the names that belong to them. The first that fits counts.
const SUBJECTS: [(&str, &[&str]); 7] = [
    ("Errors and version", &["vkgdr_last_error", "vkgdr_status", "vkgdr_version"]),
    ("Copies", &["vkgdr_copy"]),
    ("Pools", &["vkgdr_pool"]),
    ("Rings", &["vkgdr_ring"]),
    ("Existing memory and addresses", &["vkgdr_map", "vkgdr_find", "vkgdr_dma_buf", "vkgdr_device_supports_existing"]),
    ("Memory", &["vkgdr_memory", "vkgdr_receive"]),
    ("GPUs", &["vkgdr"]),
];
/// Their order on the page.
const ORDER: [&str; 7] =
    ["GPUs", "Memory", "Existing memory and addresses", "Copies", "Pools", "Rings", "Errors and version"];

/// A declaration with its comment.
struct Item {
    comment: Vec<String>,
    declaration: Vec<String>,
}

/// The page in Markdown.
pub(crate) fn page(header: &str) -> Result<String> {
    let mut lines = header.lines();
    let head: Vec<_> = lines.by_ref().take_while(|line| *line != " */").map(uncommented).collect();
    let items = items(lines, &[';']);
    let names: BTreeSet<&str> = items.iter().map(Item::name).collect();
    let mut page = String::from("# The C interface\n\n`#include <vkgdr.h>`, `pkg-config --cflags --libs vkgdr`\n\n");
    // The first line is the header's name, the last one its licence.
    let about = head.get(1..head.len().saturating_sub(1)).ok_or("the header begins with a comment")?;
    write!(page, "{}\n\n", linked(&about.join("\n"), &names))?;
    for subject in ORDER {
        write!(page, "## {subject}\n\n")?;
        for item in items.iter().filter(|item| item.subject() == Some(subject)) {
            item.write(&mut page, &names)?;
        }
    }
    match items.iter().find(|item| item.subject().is_none()) {
        Some(item) => Err(format!("'{}' has no subject in the C reference", item.declaration.join(" ")).into()),
        None => Ok(page),
    }
}

/// A line of a comment without its frame.
fn uncommented(line: &str) -> String {
    let line = line.trim_start();
    let line = line.strip_prefix("/*").or_else(|| line.strip_prefix('*')).unwrap_or(line);
    line.strip_prefix(' ').unwrap_or(line).to_owned()
}

/// What has a comment of documentation: `/**`, its text, ` */` and a declaration, which one of the characters ends.
fn items<'a>(mut lines: impl Iterator<Item = &'a str>, ends: &[char]) -> Vec<Item> {
    let mut items = Vec::new();
    while lines.any(|line| line.trim() == "/**") {
        let comment = lines.by_ref().take_while(|line| line.trim() != "*/").map(uncommented).collect();
        let mut declaration = Vec::new();
        let mut depth = 0;
        for line in lines.by_ref() {
            declaration.push(line.to_owned());
            if !line.trim_start().starts_with('*') {
                depth += line.matches('{').count();
                depth -= line.matches('}').count();
                if depth == 0 && line.ends_with(ends) {
                    break;
                }
            }
        }
        items.push(Item { comment, declaration });
    }
    items
}

impl Item {
    /// The name that is declared: before a parameter list, before a body, or last.
    fn name(&self) -> &str {
        let first = self.declaration.first().map_or("", String::as_str);
        let end = first.find(['(', '{', ';']).unwrap_or(first.len());
        first[..end]
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .rfind(|word| !word.is_empty())
            .unwrap_or_default()
    }

    fn subject(&self) -> Option<&'static str> {
        let fits = |(_, starts): &&(&str, &[&str])| starts.iter().any(|start| self.name().starts_with(start));
        SUBJECTS.iter().find(fits).map(|(subject, _)| *subject)
    }

    fn write(&self, page: &mut String, names: &BTreeSet<&str>) -> Result {
        let name = self.name();
        let has_body = self.declaration.len() > 1 && self.declaration[0].ends_with('{');
        write!(page, "### `{name}` {{: #{name} }}\n\n")?;
        if !has_body {
            let declaration = self.declaration.join("\n").replace("VKGDR_API ", "");
            write!(page, "```c\n{declaration}\n```\n\n")?;
        }
        describe(page, &self.comment, names)?;
        if has_body {
            let what = if self.declaration[0].contains("enum ") { "value" } else { "member" };
            write!(page, "| {what} | meaning |\n|---|---|\n")?;
            for member in items(self.declaration[1..].iter().map(String::as_str), &[',', ';']) {
                let declared = member.declaration.join(" ");
                let declared = declared.trim().trim_end_matches([',', ';']);
                writeln!(page, "| `{declared}` | {} |", linked(&member.comment.join(" "), names))?;
            }
            page.push('\n');
        }
        Ok(())
    }
}

/// Writes a comment, whose `@param` become a table.
fn describe(page: &mut String, comment: &[String], names: &BTreeSet<&str>) -> Result {
    let (mut in_table, mut paragraph) = (false, String::new());
    let mut end = |paragraph: &mut String, in_table: &mut bool| -> Result {
        let text = linked(std::mem::take(paragraph).trim(), names);
        if let Some((name, meaning)) = text.strip_prefix("@param ").and_then(|rest| rest.split_once(' ')) {
            if !std::mem::replace(in_table, true) {
                page.push_str("| parameter | meaning |\n|---|---|\n");
            }
            writeln!(page, "| `{name}` | {} |", meaning.trim())?;
        } else if !text.is_empty() {
            let line_before = if std::mem::take(in_table) { "\n" } else { "" };
            let text = text.strip_prefix("@return ").map_or(text.clone(), |returned| format!("**Returns** {returned}"));
            write!(page, "{line_before}{text}\n\n")?;
        }
        Ok(())
    };
    for line in comment {
        if line.starts_with('@') || line.is_empty() {
            end(&mut paragraph, &mut in_table)?;
        }
        paragraph.push_str(line.trim());
        paragraph.push(' ');
    }
    end(&mut paragraph, &mut in_table)?;
    if in_table {
        page.push('\n');
    }
    Ok(())
}

/// The text with this library's names as code, and as links where the page declares them.
fn linked(text: &str, names: &BTreeSet<&str>) -> String {
    let mut result = String::new();
    let mut is_code = false;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let len = if is_word(first) { rest.find(|c| !is_word(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        let (word, after) = rest.split_at(len);
        rest = after;
        is_code ^= word == "`";
        let is_name = word.starts_with("vkgdr_")
            || word.starts_with("VKGDR_")
            || word.starts_with("cu") && after.starts_with("()");
        if is_code || !is_name {
            result.push_str(word);
            continue;
        }
        let call = if let Some(after) = rest.strip_prefix("()") {
            rest = after;
            "()"
        } else {
            ""
        };
        let code = format!("`{word}{call}`");
        result += &if names.contains(word) { format!("[{code}](#{word})") } else { code };
    }
    result
}

#[test]
fn declarations_become_sections_with_tables_and_links() -> Result {
    let header = "/* vkgdr.h: memory.\n *\n * See vkgdr_open().\n * Licence\n */\n#define X\n\n/**\n * Flags.\n */\ntypedef enum \
                  vkgdr_open_flags {\n  /**\n   * One.\n   */\n  VKGDR_ONE = 1,\n} vkgdr_open_flags;\n\n/**\n * Opens `a_b`.\n *\n \
                  * @param flags  Of vkgdr_open_flags,\n *               or 0.\n * @return NULL. */\n */\nVKGDR_API vkgdr_t \
                  vkgdr_open(\n    uint32_t flags);\n";
    let header = header.replace("NULL. */", "NULL.");
    let page = page(&header)?;
    assert!(page.contains("See [`vkgdr_open()`](#vkgdr_open)."), "{page}");
    assert!(page.contains("### `vkgdr_open_flags` {: #vkgdr_open_flags }\n\nFlags.\n\n| value | meaning |\n|---|---|\n| `VKGDR_ONE = 1` | One. |\n"));
    assert!(page.contains("```c\nvkgdr_t vkgdr_open(\n    uint32_t flags);\n```\n\nOpens `a_b`.\n\n| parameter | meaning |\n|---|---|\n| `flags` | Of [`vkgdr_open_flags`](#vkgdr_open_flags), or 0. |\n\n**Returns** NULL.\n"), "{page}");
    assert!(super::c_reference::page("/* a\n */\n/**\n * B.\n */\nint other(void);\n").is_err());
    Ok(())
}
