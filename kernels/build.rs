//! Compiles what is not Rust: with the feature `cuda-emulation` the CUDA kernels for the CPU. By itself, nothing.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_CUDA_EMULATION").is_some() {
        println!("cargo:rerun-if-changed=cuda");
        emulation(Path::new(&env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")));
    }
}

fn emulation(out: &Path) {
    let (object, library) = (out.join("emulate.o"), out.join("libloom_cuda_emulated.a"));
    let arguments = ["-O1", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-fPIC", "-c", "-o"];
    run(Command::new(env::var_os("CXX").unwrap_or_else(|| "g++".into())).args(arguments).arg(&object).arg("cuda/emulate.cpp"));
    run(Command::new("ar").arg("crs").arg(&library).arg(&object));
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=loom_cuda_emulated");
    println!("cargo:rustc-link-lib=dylib=stdc++");
}

fn run(command: &mut Command) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{command:?} ended with {status}"),
        Err(error) => panic!("{command:?} cannot be run: {error}"),
    }
}
