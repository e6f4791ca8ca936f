//! Tables and properties of the plan.
