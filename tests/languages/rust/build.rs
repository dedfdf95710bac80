//! Generates the crate from the descriptor set that TYRUM_DESCRIPTORS names.

use prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::var("TYRUM_DESCRIPTORS")?;
    println!("cargo:rerun-if-env-changed=TYRUM_DESCRIPTORS");
    println!("cargo:rerun-if-changed={path}");
    let files = prost_types::FileDescriptorSet::decode(std::fs::read(path)?.as_slice())?;
    tonic_prost_build::configure().include_file("contracts.rs").compile_fds(files)?;
    Ok(())
}
