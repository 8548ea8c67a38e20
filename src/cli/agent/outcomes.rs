//! The outcomes of a run, for people.

use crate::agent::machine::Outcome;

/// How a run can end, as `--help` tells it. A test holds it against [`Outcome`].
pub const HELP: &str = "\
Outcomes and exit codes:
    0  end_turn          the model has said all
   10  max_turns         the cap on turns
   11  max_tokens_total  the cap on tokens
   12  max_usd           the cap on money
   13  max_wall_time     the cap on time
   14  max_tool_calls    the cap on calls of tools
   20  refusal           the model refused
   21  truncated         the output limit cut the answer, also after it was raised once
   22  context_window    the conversation does not fit, also after it was compacted
   23  loop_detected     the same calls again and again
   24  unknown_stop      the model stopped for a reason that this version does not know
   25  the model has said all, but --check or the reviews of a plan were not passed
   30  provider_error    the provider failed, after retries or for good
   31  tool_exception    a tool cannot work at all
  130  cancelled         Ctrl-C (a second one exits at once)
    1  it could not start; 2: wrong usage or configuration

Without an account, on a simulated provider behind a gateway in this process:
  prefixgate agent --sim

Every option is also a key of [agent] in the configuration file, and a variable such as
PREFIXGATE_AGENT_MODEL; a flag goes before a variable, a variable before the file.";

/// What there is to say beside the word.
pub fn detail(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Refusal(category) => category.clone(),
        Outcome::LoopDetected(tools) => Some(tools.join(", ")),
        Outcome::ProviderError(words)
        | Outcome::ToolException(words)
        | Outcome::UnknownStop(words) => Some(words.clone()),
        _ => None,
    }
}

/// What to add to the command that goes on with a run which ended so; `None` where it has nothing
/// left to do.
pub fn advice(outcome: &Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::EndTurn => None,
        Outcome::MaxTurns => Some(" --max-turns N"),
        Outcome::MaxTokensTotal => Some(" --max-tokens-total N"),
        Outcome::MaxUsd => Some(" --max-usd X"),
        Outcome::MaxWallTime => Some(" --max-wall TIME"),
        Outcome::MaxToolCalls => Some(" --max-calls N"),
        Outcome::Refusal(_)
        | Outcome::Truncated
        | Outcome::LoopDetected(_)
        | Outcome::UnknownStop(_) => Some(" --say TEXT"),
        Outcome::ContextWindow
        | Outcome::Cancelled
        | Outcome::ProviderError(_)
        | Outcome::ToolException(_) => Some(""),
    }
}
