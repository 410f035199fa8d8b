//! `include/vkgdr.h` equals cbindgen's output for the sources.
//!
//! `VKGDR_BLESS=1 cargo test -p vkgdr-c --test header` regenerates it.

use std::path::Path;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn generate(crate_folder: &Path) -> Result<String> {
    let config = cbindgen::Config::from_file(crate_folder.join("cbindgen.toml"))?;
    let bindings = cbindgen::Builder::new().with_crate(crate_folder).with_config(config).generate()?;
    let mut header = Vec::new();
    bindings.write(&mut header);
    let header = String::from_utf8(header)?;
    // Rust's heading for the caller's obligations.
    let header = header.replace(" * # Safety\n *\n", "");
    // Flags as shifts.
    let shift =
        |header: String, bit: u32| header.replace(&format!("_BIT = {},", 1_u32 << bit), &format!("_BIT = 1 << {bit},"));
    let header = (0..31).fold(header, shift);
    // vkgdr 0.1 left such names to programs, which may have variables of these names.
    Ok(["vkgdr", "vkgdr_memory", "vkgdr_pool"].iter().fold(header, |header, name| {
        header.replace(&format!("typedef struct {name} {name};"), &format!("struct {name};"))
    }))
}

#[test]
fn the_header_is_what_the_sources_say() -> Result {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !folder.join("src").exists() {
        return support::skip("the sources are not here");
    }
    let (path, generated) = (folder.join("include/vkgdr.h"), generate(folder)?);
    if std::env::var_os("VKGDR_BLESS").is_some() {
        std::fs::write(&path, &generated)?;
    }
    let committed = std::fs::read_to_string(&path)?;
    let differing = committed.lines().zip(generated.lines()).find(|(old, new)| old != new);
    assert!(
        committed == generated,
        "include/vkgdr.h is not what the sources say (VKGDR_BLESS=1 writes it anew); first difference: {differing:?}"
    );
    Ok(())
}
