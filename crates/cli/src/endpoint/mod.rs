//! `--endpoint`: the same prompts and flags, sent to any server that speaks OpenAI's protocol.
//!
//! The model runs on the server, so it can be one that doesn't fit on this machine.

#[cfg(feature = "hub")]
mod remote_chat;
#[cfg(feature = "hub")]
mod remote_text;

use crate::flags::Args;
use anyhow::Result;

/// Runs `run` or `chat` on the server given by `--endpoint`, and returns the exit code.
///
/// # Errors
/// If a flag can't be sent ([`candecode::kit::error::Usage`]), no server answers, or it rejects the
/// request.
#[cfg(feature = "hub")]
pub fn run(args: &Args, address: &str) -> Result<u8> {
    use crate::output::show;
    use crate::plan::plan;
    use crate::{chat_terminal, interrupt};
    use candecode::kit::error::{shown, usage};
    use candecode::kit::note::note;
    use candecode_remote::endpoint::{self, Client};

    let client = Client::new(address, args.api_key.as_deref())?;
    if args.models {
        for server in client.models()? {
            show(&format!("{}\n", shown(&server.model)))?;
        }
        return Ok(0);
    }
    let prompts = remote_text::prompts(args)?;
    if prompts.is_empty() && !args.chat {
        return Err(usage("no prompt; give one with --prompt, --prompt-file or --prompt-ids"));
    }
    let (_, params) = plan(args, prompts.len().max(1))?;
    let server = client.choose_model(&args.model)?;
    endpoint::check(&params, &server, args.chat, !args.template_set.is_empty())?;
    note!("[{} on {}]", shown(&server.model), client.base());
    interrupt::watch();
    if args.chat {
        let mut chat = remote_chat::RemoteChat::new(&client, &server, args, &params)?;
        return chat_terminal::talk(&mut chat, args.stats);
    }
    remote_text::run(&client, &server, args, &params, &prompts)
}

/// Stands in for the client in builds without it.
///
/// # Errors
/// Always.
#[cfg(not(feature = "hub"))]
pub fn run(_args: &Args, _address: &str) -> Result<u8> {
    anyhow::bail!(
        "this build has no HTTP client: --endpoint needs the feature `hub`; \
         use `cargo xtask run`, or build with --features hub"
    )
}
