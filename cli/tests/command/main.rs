//! The command `vkgdr` as users run it.

mod doctor;
mod info;
mod line;
mod machine;
