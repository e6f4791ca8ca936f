//! What the pod's owner was promised about restarts and order, in the fewest words (behaviour sections 5.1, 6 and 7).

use super::{Part, Plan, Policy, Role};

/// Whether a container that ended in that way is followed by another one of its name.
pub(super) fn comes_back(plan: &Plan, part: &Part, code: i32, oom: bool) -> bool {
    if part.role == Role::Guest {
        return false;
    }
    // Rules count only beside a policy of the container's own.
    if part.policy.is_some() && part.rules.iter().any(|rule| rule.is_for(code)) {
        return true;
    }
    match plan.policy_of(part) {
        Policy::Always => true,
        Policy::OnFailure => code != 0 || oom,
        Policy::Never => false,
    }
}

/// Whether the exit takes the whole pod back to its beginning: the first rule for the code says so.
pub(super) fn restarts_all(part: &Part, code: i32) -> bool {
    part.policy.is_some() && part.rules.iter().find(|rule| rule.is_for(code)).is_some_and(|rule| rule.all)
}

#[cfg(test)]
mod tests {
    use super::super::{Dice, Rule};
    use super::*;

    #[test]
    fn policies_and_rules_say_what_comes_back() {
        let mut plan = Plan::random(&mut Dice::new(1), "p", false);
        let mut part = plan.parts.iter().rfind(|part| part.role == Role::Main).unwrap().clone();
        (part.policy, part.rules) = (None, Vec::new());
        for (policy, wanted) in
            [(Policy::Always, [true, true]), (Policy::OnFailure, [false, true]), (Policy::Never, [false, false])]
        {
            plan.policy = policy;
            assert_eq!([0, 1].map(|code| comes_back(&plan, &part, code, false)), wanted);
        }
        part.policy = Some(Policy::Never);
        part.rules = vec![Rule { codes: vec![3], but: false, all: true }];
        assert!(comes_back(&plan, &part, 3, false) && restarts_all(&part, 3));
        assert!(!comes_back(&plan, &part, 1, false) && !restarts_all(&part, 1));
        plan.policy = Policy::OnFailure;
        part.policy = None;
        assert!(comes_back(&plan, &part, 0, true), "killed for memory counts as a failure");
    }
}
