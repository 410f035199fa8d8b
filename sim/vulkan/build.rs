//! Links the layer so that it stays in the process.
//!
//! The Vulkan loader closes its layers with the last instance. Counts, pending faults and the ones that the
//! environment named must outlive that, or each first fault would come back with the next instance.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
