//! Names of signals as pods write them (`lifecycle.stopSignal`).

/// Those with a name of their own on Linux.
const PLAIN: [&str; 34] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

/// Says whether a pod on Linux may ask for this signal.
pub fn is_known(name: &str) -> bool {
    let counted = |first: &str, last: u8| {
        let number =
            name.strip_prefix(first).filter(|digits| !digits.starts_with('0')).and_then(|n| n.parse::<u8>().ok());
        number.is_some_and(|number| (1..=last).contains(&number))
    };
    PLAIN.contains(&name)
        || matches!(name, "SIGRTMIN" | "SIGRTMAX")
        || counted("SIGRTMIN+", 15)
        || counted("SIGRTMAX-", 14)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_the_names_of_linux() {
        for name in ["SIGTERM", "SIGUSR1", "SIGRTMIN", "SIGRTMIN+1", "SIGRTMIN+15", "SIGRTMAX-14", "SIGRTMAX"] {
            assert!(is_known(name), "{name}");
        }
        for name in ["", "TERM", "15", "SIGRTMIN+0", "SIGRTMIN+16", "SIGRTMAX-15", "SIGRTMIN+01", "RUNTIME_DEFAULT"] {
            assert!(!is_known(name), "{name}");
        }
    }
}
