//! Builds the guide: one site of all pages, rustdoc, the C header's comments and the Python package's docstrings. A dead link fails.
//!
//! The pages are read where they lie in the sources, by other tools as well, so they are copied with what they link to.

use std::fs;
use std::path::{Path, PathBuf};

use xshell::Cmd;

use crate::Result;
use crate::context::{Context, say};
use crate::{blocks, c_reference, links};

/// The public classes and functions of the Python package, by module.
const PYTHON: [&str; 7] =
    ["vkgdr", "vkgdr.arrays", "vkgdr.ipc", "vkgdr.pool", "vkgdr.pycuda", "vkgdr.stream", "vkgdr.vulkan"];

/// Builds the site, with rustdoc's pages if they are there.
pub(crate) fn build(context: &Context) -> Result {
    let folder = context.target.join("guide");
    let (pages, site) = (folder.join("pages"), folder.join("site"));
    context.fresh(&pages)?;
    for page in links::pages(&context.root)? {
        let text = fs::read_to_string(&page)?;
        let copied = copy(context, &page, &pages)?;
        // Markdown knows languages, and not the words that rustdoc adds to them.
        let shown = blocks::without_comments(&text).replace("```rust,no_run\n", "```rust\n");
        fs::write(copied, shown)?;
        let targets =
            links::links(&text).into_iter().map(|link| page.with_file_name(link.split('#').next().unwrap_or_default()));
        for target in
            targets.filter(|target| target.is_file() && target.extension().is_none_or(|extension| extension != "md"))
        {
            copy(context, &target.canonicalize()?, &pages)?;
        }
    }
    copy(context, &context.root.join("docs/guide.css"), &pages)?;
    let reference = pages.join("reference");
    fs::create_dir_all(&reference)?;
    let header = fs::read_to_string(context.root.join("ffi/c/include/vkgdr.h"))?;
    fs::write(reference.join("c.md"), c_reference::page(&header)?)?;
    let modules: String = PYTHON.iter().map(|module| format!("::: {module}\n\n")).collect();
    fs::write(reference.join("python.md"), format!("# The Python package\n\n{modules}"))?;

    let settings = fs::read_to_string(context.root.join("docs/mkdocs.yml"))?;
    let settings = settings.replace("ffi/python/python", &context.root.join("ffi/python/python").display().to_string());
    let file = folder.join("mkdocs.yml");
    fs::write(&file, format!("{settings}docs_dir: pages\n"))?;
    say("the guide");
    fs::write(pages.join("docs/code.css"), code_colors(context)?)?;
    let mkdocs = tool(context, "mkdocs build --quiet --strict --config-file").arg(&file).arg("--site-dir").arg(&site);
    mkdocs.env("NO_MKDOCS_2_WARNING", "1").run()?;
    none_is_raw(&site)?;
    let (made, rust) = (context.target.join("doc"), site.join("rust"));
    if made.join("vkgdr/index.html").is_file() {
        context.fresh(&rust)?;
        context.command("cp -a").arg(made.join(".")).arg(&rust).run()?;
    } else {
        say("without rustdoc's pages, which `make docs` makes first");
    }
    println!("{}", site.join("index.html").display());
    Ok(())
}

/// A command of the guide's Python tools.
fn tool<'a>(context: &'a Context, line: &str) -> Cmd<'a> {
    let run = "run --quiet --no-project --with-requirements scripts/requirements/guide.txt";
    context.tool("uv").args(run.split(' ')).args(line.split(' '))
}

/// The style sheet of highlighted code: one of Pygments' styles for a light page, another for a dark one.
fn code_colors(context: &Context) -> Result<String> {
    let mut sheet = String::new();
    for (style, theme) in [("friendly", "light"), ("github-dark", "dark")] {
        let line = format!("pygmentize -f html -S {style} -a");
        sheet += &tool(context, &line).arg(format!("[data-bs-theme={theme}] .codehilite")).read()?;
        sheet.push('\n');
    }
    Ok(sheet)
}

/// Fails if a page shows a fence of code, whose language Markdown did not understand.
fn none_is_raw(site: &Path) -> Result {
    let mut folders = vec![site.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html")
                && fs::read_to_string(&path)?.contains("```")
            {
                return Err(format!("{} shows a fence of code", path.display()).into());
            }
        }
    }
    Ok(())
}

/// Copies a file of the sources to its place in another folder, and returns that.
fn copy(context: &Context, file: &Path, to: &Path) -> Result<PathBuf> {
    let root = context.root.canonicalize()?;
    let target = to.join(file.canonicalize()?.strip_prefix(&root)?);
    fs::create_dir_all(target.parent().unwrap_or(to))?;
    fs::copy(file, &target)?;
    Ok(target)
}
