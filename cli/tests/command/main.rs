//! The command `vkgdr` as users run it.

mod bench;
mod doctor;
mod info;
mod line;
mod machine;
