//! Where a model is: on this machine, or on the hub, in builds that can download.

use anyhow::Result;
use candecode_formats::hub;
use std::path::PathBuf;

/// Returns the path of a model, as [`hub::locate`] does. Downloads it if necessary, unless
/// `offline` is set.
///
/// # Errors
/// If the model doesn't exist, or isn't on this machine and can't be downloaded.
#[cfg(feature = "hub")]
pub fn locate(name: &str, offline: bool) -> Result<PathBuf> {
    hub::locate(name, Some(&candecode_remote::hub::Hub { offline }))
}

/// Returns the path of a model on this machine.
///
/// # Errors
/// If the model isn't on this machine.
#[cfg(not(feature = "hub"))]
pub fn locate(name: &str, _offline: bool) -> Result<PathBuf> {
    hub::locate(name, None)
}
