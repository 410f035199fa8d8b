//! Exports the symbol that the extension module of vkgdr 0.1 needs (`c.rs`).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=_Py_NoneStruct");
}
