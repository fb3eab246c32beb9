//! The flags of `cargo xtask serve`, with vLLM's names where vLLM has one.

use anyhow::{bail, ensure, Result};
use axum::http::Uri;
use candecode::kit::device;
use candecode::kit::error::usage;
use candecode::kit::pages;
use candecode::kit::units::bytes;
use candecode::kit::ModelConfig;
use candecode::Day;
use candecode_engine::operations::Kernels;
use candecode_engine::trace::TraceFormat;
use candecode_formats::hub::DEFAULT_MODEL;
use clap::{Parser, ValueEnum};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

/// The size of the cache, in bytes, if no flag sets it and the free memory isn't known.
const UNKNOWN_ROOM: f64 = 4e9;

/// The schedulers that can run under day 20's loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchedulerDay {
    /// One batch as a rectangle; each prompt is computed whole
    Day15,
    /// Blocks of a few positions; prompts are computed in chunks, and share what they have in
    /// common
    Day23,
}

/// A server for OpenAI's clients, using the days that are compiled in.
#[derive(Debug, Clone, Parser)]
#[command(name = "candecode-serve", version, about, max_term_width = 100)]
pub struct ServeFlags {
    /// The model, as in `cargo xtask run`: an embedded one, a folder, a GGUF file, a name, or
    /// random-135m
    #[arg(long, default_value = DEFAULT_MODEL, value_name = "NAME|DIR|FILE|OWNER/REPO")]
    pub model: String,
    /// The model's name for clients [default: the value of --model]
    #[arg(long, value_name = "NAME")]
    pub served_model_name: Option<String>,
    /// The address or name to listen on; anything but this machine's own requires a key
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = host)]
    pub host: IpAddr,
    /// The port; 0 picks a free one and prints it
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// The API key that clients must send [default: the value of CANDECODE_API_KEY, which doesn't
    /// show up in the process list]
    #[arg(long, value_name = "KEY")]
    pub api_key: Option<String>,
    /// Origins of web pages that may send requests, such as http://localhost:3000; null for pages
    /// from a file, * for any
    /// [default: only the server's own page]
    #[arg(long, value_name = "ORIGINS", value_delimiter = ',', value_parser = origin)]
    pub allowed_origins: Vec<String>,
    /// Maximum number of sequences that run at once. Each text is bit-identical to what it is alone
    #[arg(
        long,
        alias = "max-batch",
        value_name = "N",
        default_value_t = 32,
        value_parser = in_range(1, 4096)
    )]
    pub max_num_seqs: usize,
    /// Maximum number of tokens per step. Longer prompts are computed in chunks
    /// [default: 128]
    #[arg(long, value_name = "N", value_parser = in_range(1, 1 << 20))]
    pub max_num_batched_tokens: Option<usize>,
    /// Maximum number of waiting requests. Any others are rejected (429)
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = in_range(0, 1 << 16))]
    pub max_queue: usize,
    /// Number of positions in the cache [default: as many as fit in a third of the free memory, or
    /// in 4 GB where that isn't known, as on CUDA]
    #[arg(long, value_name = "N", value_parser = in_range(1, 1 << 40))]
    pub max_batch_tokens: Option<usize>,
    /// Positions per block of the cache: a divisor of 64 [default: 16]
    #[arg(long, value_name = "N", value_parser = pages::parse_block_size)]
    pub block_size: Option<usize>,
    /// Number of blocks, instead of --max-batch-tokens
    #[arg(
        long,
        alias = "num-blocks",
        value_name = "N",
        conflicts_with = "max_batch_tokens",
        value_parser = in_range(1, 1 << 32)
    )]
    pub num_gpu_blocks_override: Option<usize>,
    /// Compute every prompt from its start, even if another one started the same way
    #[arg(long)]
    pub no_enable_prefix_caching: bool,
    /// The scheduler [default: day15 if you've written that day and not day 23, else day23]
    #[arg(long, value_enum, value_name = "DAY")]
    pub scheduler: Option<SchedulerDay>,
    /// Maximum number of open connections. Any others are rejected (503)
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = in_range(1, 1 << 16))]
    pub max_connections: usize,
    /// Seconds that a client may take to send a request, or go without reading its answer. A
    /// connection without a request is closed after the same time
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = in_range(1, 86_400))]
    pub patience: usize,
    /// A chat template to use instead of the model's own: a file, or "story"
    #[arg(long, value_name = "FILE")]
    pub template: Option<String>,
    /// The device to run on: cpu, metal or cuda
    #[arg(long, value_name = "DEVICE", default_value = device::DEFAULT)]
    pub device: String,
    /// The type of the weights in memory: f32, bf16 or f16 [default: f32; on the CPU, a GGUF file's
    /// quantized weights stay as they are stored]
    #[arg(long, value_name = "DTYPE")]
    pub dtype: Option<String>,
    /// The kernels, as in `cargo xtask run`
    #[arg(long, value_enum, value_name = "KERNELS")]
    pub kernels: Option<Kernels>,
    /// Print a line to standard error for each pass of the model: its requests, how many of their
    /// tokens are in the cache, and blocks
    #[arg(long)]
    pub trace: bool,
    /// Print the trace as a table, or as one JSON object per line
    #[arg(long, value_name = "FORMAT", default_value = "text", requires = "trace")]
    pub format: TraceFormat,
    /// Don't use the network: the model must be on this machine
    #[arg(long)]
    pub offline: bool,
}

/// Returns a parser for integers from `least` to `most`.
fn in_range(least: u64, most: u64) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| format!("give a whole number from {least} to {most}"))
    }
}

/// Parses an address, or a name, such as localhost, of which an IPv4 address is preferred.
fn host(text: &str) -> Result<IpAddr, String> {
    let found = (text, 0).to_socket_addrs().map_err(|e| e.to_string())?;
    let found: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    let v4 = found.iter().find(|address| address.is_ipv4());
    v4.or(found.first()).copied().ok_or_else(|| "this name has no address".to_string())
}

/// Parses a page's origin, `null` or `*`. Returns it as browsers send it: in lowercase, without the
/// scheme's own port.
fn origin(text: &str) -> Result<String, String> {
    if text == "*" || text == "null" {
        return Ok(text.to_string());
    }
    let uri = text
        .parse::<Uri>()
        .ok()
        .filter(|uri| uri.path() == "/" && uri.query().is_none() && !text.ends_with('/'));
    let parts = uri.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri.authority()?)));
    let Some((scheme, authority)) = parts else {
        return Err("give an origin, such as http://localhost:3000, null, or * for any".into());
    };
    let origin = format!("{scheme}://{authority}").to_lowercase();
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    Ok(origin.strip_suffix(port).unwrap_or(&origin).to_string())
}

impl ServeFlags {
    /// Rejects invalid flags before a model is loaded.
    ///
    /// # Errors
    /// A usage error.
    pub fn check(&self) -> Result<()> {
        if let Some(key) = self.key() {
            let can_be_sent = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
            ensure!(
                can_be_sent,
                usage(
                    "--api-key (or CANDECODE_API_KEY) is empty, or has a space or a non-ASCII \
                     character, which clients can't send; use letters, digits and punctuation"
                )
            );
        }
        ensure!(
            self.host.is_loopback() || self.key().is_some(),
            usage(format!(
                "--host {} lets other machines connect: give them a key with --api-key",
                self.host
            ))
        );
        if let (Some(SchedulerDay::Day15), Some(flag)) = (self.scheduler, self.flag_of_pages()) {
            bail!(usage(format!(
                "{flag} needs day 23's scheduler: omit it, or --scheduler day15, whose batch is \
                 one rectangle"
            )))
        }
        Ok(())
    }

    /// Returns a flag that was given and that only a scheduler over pages can take.
    fn flag_of_pages(&self) -> Option<&'static str> {
        let given = [
            ("--max-num-batched-tokens", self.max_num_batched_tokens.is_some()),
            ("--block-size", self.block_size.is_some()),
            ("--num-gpu-blocks-override", self.num_gpu_blocks_override.is_some()),
            ("--no-enable-prefix-caching", self.no_enable_prefix_caching),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }

    /// Returns the scheduler: the one that was named, or else the latest that the reader has
    /// written and that can take the flags.
    pub fn scheduler(&self, days: &[Day]) -> SchedulerDay {
        let yours = |number| days.iter().any(|day| day.number == number && !day.reference);
        let default = match yours(15) && !yours(23) && self.flag_of_pages().is_none() {
            true => SchedulerDay::Day15,
            false => SchedulerDay::Day23,
        };
        self.scheduler.unwrap_or(default)
    }

    /// Returns the number of positions in a block.
    pub fn block_size(&self) -> usize {
        self.block_size.unwrap_or(16)
    }

    /// Returns the key that clients must send. None: no key needed.
    pub fn key(&self) -> Option<String> {
        self.api_key.clone().or_else(|| std::env::var("CANDECODE_API_KEY").ok())
    }

    /// Returns the address if only clients on this machine are allowed, that is, if it is loopback
    /// and there is no key.
    pub fn local(&self) -> Option<IpAddr> {
        (self.host.is_loopback() && self.key().is_none()).then_some(self.host)
    }

    /// Returns the address to bind.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.host, self.port)
    }

    /// Returns the model's name in the API.
    pub fn name(&self) -> &str {
        self.served_model_name.as_deref().unwrap_or(&self.model)
    }

    /// Returns the number of positions that the cache holds: what the flags ask for, or enough for
    /// every sequence to reach the full context, capped by a third of the memory left after the
    /// weights, or by [`UNKNOWN_ROOM`]. The rest is for the steps themselves. `weights` and `free`,
    /// the available memory if it is known, are in bytes. `value_bytes` is the size of one number
    /// in the cache.
    ///
    /// # Errors
    /// If there isn't enough memory.
    pub fn batch_tokens(
        &self,
        config: &ModelConfig,
        weights: f64,
        value_bytes: usize,
        free: Option<f64>,
    ) -> Result<usize> {
        let context = config.max_position_embeddings;
        let heads = config.num_hidden_layers * config.num_key_value_heads;
        let of_a_token = (2 * heads * config.head_dim * value_bytes) as f64;
        let all = self.max_num_seqs.saturating_mul(context);
        let blocks = self.num_gpu_blocks_override;
        let asked = blocks.map(|blocks| blocks.saturating_mul(self.block_size()));
        if let Some(tokens) = asked.or(self.max_batch_tokens) {
            if let Some(free) = free {
                let needed = tokens as f64 * of_a_token;
                ensure!(
                    weights + needed <= free,
                    "{tokens} positions of keys and values need {}, the weights {}, and only {} of \
                     memory are available; use fewer positions or blocks",
                    bytes(needed),
                    bytes(weights),
                    bytes(free)
                );
            }
            return Ok(tokens);
        }
        let Some(free) = free else { return Ok(all.min((UNKNOWN_ROOM / of_a_token) as usize)) };
        let room = ((free - weights) / 3.0 / of_a_token).max(0.0) as usize;
        if room < 16 {
            bail!(
                "{} of memory are available, and the weights take {}, so there is no room for a \
                 batch; use a smaller --model, or --dtype bf16",
                bytes(free),
                bytes(weights)
            )
        }
        Ok(all.min(room))
    }

    /// Returns a note if the cache's default size leaves room for only a part (`context`) of the
    /// model's own context. Sizes that the flags give are chosen knowingly.
    pub fn context_note(&self, own_context: usize, context: usize) -> Option<String> {
        let chosen = self.max_batch_tokens.is_some() || self.num_gpu_blocks_override.is_some();
        (context < own_context && !chosen).then(|| {
            format!(
                "note: a text has at most {context} tokens, not the model's {own_context}, because \
                 the cache has no room for more; --max-batch-tokens makes it larger"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candecode_formats::{hub, ModelFiles};

    #[test]
    fn the_cache_is_limited_in_bytes() {
        let files = ModelFiles::at(&hub::locate("story-230k", None).unwrap()).unwrap();
        let config = ModelConfig { max_position_embeddings: 1 << 20, ..files.config().clone() };
        let numbers = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim;
        let flags = ServeFlags::parse_from(["serve"]);
        for (value_bytes, free, room) in
            [(4, None, UNKNOWN_ROOM), (2, None, UNKNOWN_ROOM), (4, Some(4e9), 1e9)]
        {
            let of_a_token = (numbers * value_bytes) as f64;
            let tokens = flags.batch_tokens(&config, 1e9, value_bytes, free).unwrap();
            let used = tokens as f64 * of_a_token;
            assert!(used <= room && used > room - of_a_token, "{used} of {room}");
        }
        // Only if a number has 2 bytes, as in bf16 on a GPU, do a million positions fit.
        let flags = ServeFlags::parse_from(["serve", "--max-batch-tokens", "1000000"]);
        let free = Some(3e6 * numbers as f64);
        assert_eq!(flags.batch_tokens(&config, 0.0, 2, free).unwrap(), 1_000_000);
        assert!(flags.batch_tokens(&config, 0.0, 4, free).is_err());
        assert_eq!(flags.batch_tokens(&config, 0.0, 4, None).unwrap(), 1_000_000);
    }

    #[test]
    fn the_scheduler_is_the_latest_that_is_written() {
        let days = |yours: &[usize]| -> Vec<Day> {
            let day = |number| Day { number, name: "", reference: !yours.contains(&number) };
            (0..25).map(day).collect()
        };
        let (fifteen, both) = (days(&[15, 20]), days(&[15, 20, 23]));
        let flags = |line: &str| ServeFlags::parse_from(line.split(' '));
        assert_eq!(flags("serve").scheduler(&days(&[20])), SchedulerDay::Day23);
        assert_eq!(flags("serve").scheduler(&fifteen), SchedulerDay::Day15);
        assert_eq!(flags("serve").scheduler(&both), SchedulerDay::Day23);
        assert_eq!(flags("serve --scheduler day15").scheduler(&both), SchedulerDay::Day15);
        assert_eq!(flags("serve --scheduler day23").scheduler(&fifteen), SchedulerDay::Day23);
        for flag in [
            "--max-num-batched-tokens 64",
            "--block-size 8",
            "--num-gpu-blocks-override 9",
            "--no-enable-prefix-caching",
        ] {
            assert_eq!(
                flags(&format!("serve {flag}")).scheduler(&fifteen),
                SchedulerDay::Day23,
                "{flag}"
            );
            let refused = flags(&format!("serve --scheduler day15 {flag}")).check().unwrap_err();
            let name = flag.split(' ').next().unwrap();
            assert!(refused.to_string().contains(name), "{refused}");
        }
    }

    #[test]
    fn a_context_cut_by_the_default_cache_is_noted() {
        let flags = ServeFlags::parse_from(["serve"]);
        let note = flags.context_note(40_960, 2_325).unwrap();
        assert!(note.contains("2325") && note.contains("--max-batch-tokens"), "{note}");
        assert_eq!(flags.context_note(512, 512), None);
        let flags = ServeFlags::parse_from(["serve", "--max-batch-tokens", "2325"]);
        assert_eq!(flags.context_note(40_960, 2_325), None);
    }
}
