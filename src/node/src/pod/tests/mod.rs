//! Workers on fakes, with paused time.
