//! Signals under the names of pods and of the runtime: those counted from the ends of the real-time range have signs in the
//! one (`SIGRTMIN+3`) and words in the other (`SIGRTMINPLUS3`).

use longshore_cri::v1::Signal;

/// The runtime's signal for the name in a pod's spec.
pub(super) fn parse(name: &str) -> Option<Signal> {
    Signal::from_str_name(&name.replace('+', "PLUS").replace('-', "MINUS"))
}

/// The name that a pod's status shows; `None` = the runtime says nothing of it.
pub(super) fn shown(signal: Signal) -> Option<String> {
    let name = signal.as_str_name();
    (signal != Signal::RuntimeDefault).then(|| name.replace("PLUS", "+").replace("MINUS", "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_of_the_runtime_is_found_again_by_its_name_in_a_pod() {
        let all: Vec<Signal> = (1..).map_while(|number| Signal::try_from(number).ok()).collect();
        assert_eq!(all.len(), 65);
        for signal in all {
            let name = shown(signal).unwrap();
            assert!(longshore_api::signals::is_known(&name), "{name}");
            assert_eq!(parse(&name), Some(signal));
        }
        assert_eq!(shown(Signal::RuntimeDefault), None);
    }
}
