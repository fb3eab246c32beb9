//! `--endpoint`: the same prompts and flags, sent to any server that speaks OpenAI's protocol.
//!
//! Nothing of the course runs here: a model that does not fit this machine is asked where it does.

mod remote_request;

#[cfg(feature = "hub")]
mod remote_chat;
#[cfg(feature = "hub")]
mod remote_client;
#[cfg(feature = "hub")]
mod remote_text;
#[cfg(feature = "hub")]
mod server_events;

use crate::cli::flags::Args;
use anyhow::Result;

/// Runs `run` or `chat` on the server of `--endpoint`; gives the exit code.
///
/// # Errors
/// If a flag cannot be sent ([`crate::kit::error::Usage`]), nobody answers, or the server refuses.
#[cfg(feature = "hub")]
pub fn run(args: &Args, address: &str) -> Result<u8> {
    use crate::cli::output::show;
    use crate::cli::plan::Plan;
    use crate::kit::error::{shown, usage};
    use crate::kit::note::note;
    use remote_client::Client;

    remote_request::refuse_local_flags(args)?;
    let client = Client::new(address, args.api_key.as_deref())?;
    if args.models {
        for model in client.models()?.unwrap_or_default() {
            show(&format!("{}\n", shown(&model.id)))?;
        }
        return Ok(0);
    }
    let prompts = remote_text::prompts(args)?;
    if prompts.is_empty() && !args.chat {
        return Err(usage("no prompt; give one with --prompt, --prompt-file or --prompt-ids"));
    }
    let plan = Plan::new(args, prompts.len().max(1))?;
    let server = client.choose_model(&args.model)?;
    let note = remote_request::refuse_unknown_fields(args, &plan.params, &server)?;
    if let Some(note) = note {
        note!("{note}");
    }
    note!("[{} on {}]", shown(&server.model), client.base());
    if args.chat {
        return remote_chat::talk(&client, &server, args, &plan.params);
    }
    remote_text::run(&client, &server, args, &plan.params, &prompts)
}

/// A build without the client cannot ask a server.
///
/// # Errors
/// Always.
#[cfg(not(feature = "hub"))]
pub fn run(args: &Args, _address: &str) -> Result<u8> {
    remote_request::refuse_local_flags(args)?;
    anyhow::bail!("this build has no HTTP client: --endpoint needs the feature `hub`")
}
