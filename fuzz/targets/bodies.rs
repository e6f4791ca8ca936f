#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| longshore_fuzz::bodies::run(input));
