//! Compiles the CUDA kernels: for GPUs with the feature `cuda`, for the CPU with `cuda-emulation`. Without these features it
//! does nothing.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let enabled = |feature: &str| env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    if enabled("CUDA") || enabled("CUDA_EMULATION") {
        println!("cargo:rerun-if-changed=cuda");
    }
    if enabled("CUDA") {
        kernels(&out);
    }
    if enabled("CUDA_EMULATION") {
        emulation(&out);
    }
}

const KERNELS: [&str; 6] = ["attention", "logits", "mamba", "mamba2", "norm", "product"];

/// Machine code for A100 and H100, and PTX that the driver compiles for later GPUs.
fn kernels(out: &Path) {
    for variable in ["NVCC", "CUDA_HOME", "CUDA_PATH"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let nvcc = nvcc();
    for name in KERNELS {
        let mut command = Command::new(&nvcc);
        command.args(["-O3", "-std=c++17", "-Werror", "all-warnings", "-fatbin"]);
        command.args(["-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=[sm_90,compute_90]"]);
        command.arg("-o").arg(out.join(name).with_extension("fatbin")).arg(format!("cuda/{name}.cu"));
        run(&mut command);
    }
}

fn nvcc() -> PathBuf {
    let home = |variable: &str| env::var_os(variable).map(|home| Path::new(&home).join("bin/nvcc"));
    let installed =
        [env::var_os("NVCC").map(PathBuf::from), home("CUDA_HOME"), home("CUDA_PATH")].into_iter().flatten();
    // Created by scripts/setup-cuda.sh, and the default folder of the toolkit.
    let usual = ["../target/cuda/nvidia/cu13/bin/nvcc", "nvcc", "/usr/local/cuda/bin/nvcc"].map(PathBuf::from);
    let runs =
        |nvcc: &PathBuf| Command::new(nvcc).arg("--version").output().is_ok_and(|output| output.status.success());
    installed.chain(usual).find(runs).unwrap_or_else(|| {
        panic!(
            "the feature `cuda` needs nvcc, and none was found by NVCC, CUDA_HOME, CUDA_PATH or PATH. Install the CUDA \
             toolkit, or run `export CUDA_HOME=$(scripts/setup-cuda.sh)`, which downloads a compiler from PyPI (100 MB)."
        )
    })
}

fn emulation(out: &Path) {
    let (object, library) = (out.join("emulate.o"), out.join("libloom_cuda_emulated.a"));
    let arguments = ["-O1", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-fPIC", "-c", "-o"];
    run(Command::new(env::var_os("CXX").unwrap_or_else(|| "g++".into()))
        .args(arguments)
        .arg(&object)
        .arg("cuda/emulate.cpp"));
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
