//! Gives the library gdrcopy's soname, which programs that were linked against it ask for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgdrapi.so.2");
    // Never unloaded: it keeps the drivers loaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
