//! Whether a program caught a failure and went on.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::{Stream, pattern};

static HANDLED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"retry(?:ing)?(?:with|without|at|by|the|in|after|batch|step|attempt|once|again|\d|\.\.\.|:|\()|skipp(?:ing|ed)(?:this|the|batch|sample|step|a|one|\d)|batchskipped|(?:reduc|halv|lower|decreas|shrink)(?:ing|ed)(?:the)?(?:micro|per[-_]device)?[-_]?(?:train)?(?:batch|chunk|tile)|^[),;:.]*(?:reducing|skipping|retrying|trying(?:\d|with|batch|again|half|smaller|the)|falling|halving)|fallingback|fellback|recovered|continu(?:ing|e)(?:with|training|without|anyway|\.)|usingsmaller|withabatchsizeof|batch_?size\w*succeeded|tryingagain|tryagainwith|caught(?:oom|out)|oomcaught|willbedecreased|wentonwith|switchingtocpu|swappingtocpu|offloadingtocpu|tiled(?:vae|decod)|usingtiled|freedandretried",
    )
});
static FATAL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"traceback\(mostrecentcalllast\)|duringhandlingoftheaboveexception|exitcode|exitedwith|aborted\(core|coredumped|givingup|noexecutable\w*batchsize|aborting|fatal|killed",
    )
});
static MEMORY: LazyLock<Regex> = LazyLock::new(|| pattern(r"outofmemory|resource_?exhausted"));

const ADVICE: &[&str] = &[
    "try",
    "or",
    "by",
    "please",
    "consider",
    "considering",
    "could",
    "can",
    "should",
    "and",
];

/// Whether the program said that it caught a failure, and did not end by it.
pub(super) fn is_handled(stream: &Stream, begin: usize, end: usize) -> bool {
    let after = stream.after(end, 3000);
    // `skipping batch: CUDA out of memory ...`
    if HANDLED.is_match(stream.before_in_line(begin)) {
        return !FATAL.is_match(after);
    }
    // What is recommended was not done.
    let done = HANDLED.find_iter(after).find(|handled| {
        let before = &after[..handled.start()];
        !ADVICE.iter().any(|word| before.ends_with(word))
    });
    let Some(handled) = done else {
        return false;
    };
    // Another failure in between is the one that was handled.
    if MEMORY
        .find(crate::text::head(after, handled.start()))
        .is_some_and(|again| again.start() > 400)
    {
        return false;
    }
    let rest = &after[handled.end()..];
    // What ends by memory all the same was not helped by trying again.
    match FATAL.find(rest) {
        Some(fatal) => !MEMORY.is_match(&rest[fatal.start()..]) && !rest.contains("givingup"),
        None => true,
    }
}
