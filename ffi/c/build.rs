//! Gives the library vkgdr 0.1's soname, which programs that were linked against it ask for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libvkgdr.so.1");
    // Never unloaded: it keeps the drivers loaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
