//! For which images a pod must show that it may use them. Pure.

/// `imagePullCredentialsVerificationPolicy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifyPolicy {
    /// None.
    Never,
    /// Those that this agent has pulled.
    NotPreloaded,
    /// All but those of a list that somebody else brought here.
    NotListed(Vec<String>),
    /// All.
    Always,
}

impl VerifyPolicy {
    /// Reads the configuration's word; an unknown one has been refused before.
    pub fn parse(word: &str, list: &[String]) -> Self {
        match word {
            "NeverVerify" => Self::Never,
            "AlwaysVerify" => Self::Always,
            "NeverVerifyAllowlistedImages" => Self::NotListed(list.to_vec()),
            _ => Self::NotPreloaded,
        }
    }

    /// Says whether an image, named without tag and digest, needs a proof.
    pub(super) fn wants_proof(&self, repository: &str, pulled_here: bool) -> bool {
        match self {
            Self::Never => false,
            Self::NotPreloaded => pulled_here,
            Self::NotListed(list) => pulled_here || !list.iter().any(|entry| lists(entry, repository)),
            Self::Always => true,
        }
    }
}

/// An entry names one repository, or with `/*` at its end all below it.
fn lists(entry: &str, repository: &str) -> bool {
    match entry.strip_suffix("/*") {
        Some(above) => repository.strip_prefix(above).is_some_and(|rest| rest.starts_with('/')),
        None => entry == repository,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_asks_for_its_own_proofs() {
        let listed = VerifyPolicy::NotListed(vec!["reg/a".into(), "reg/team/*".into()]);
        for (policy, repository, pulled_here, want) in [
            (&VerifyPolicy::Never, "reg/a", true, false),
            (&VerifyPolicy::NotPreloaded, "reg/a", false, false),
            (&VerifyPolicy::NotPreloaded, "reg/a", true, true),
            (&VerifyPolicy::Always, "reg/a", false, true),
            (&listed, "reg/a", false, false),
            (&listed, "reg/a", true, true),
            (&listed, "reg/ab", false, true),
            (&listed, "reg/team/x/y", false, false),
            (&listed, "reg/teams", false, true),
            (&listed, "reg/team", false, true),
        ] {
            assert_eq!(policy.wants_proof(repository, pulled_here), want, "{policy:?} {repository} {pulled_here}");
        }
    }

    #[test]
    fn the_configurations_words_are_read() {
        assert_eq!(VerifyPolicy::parse("", &[]), VerifyPolicy::NotPreloaded);
        assert_eq!(VerifyPolicy::parse("NeverVerify", &[]), VerifyPolicy::Never);
        let list = ["a".to_owned()];
        assert_eq!(VerifyPolicy::parse("NeverVerifyAllowlistedImages", &list), VerifyPolicy::NotListed(list.to_vec()));
    }
}
