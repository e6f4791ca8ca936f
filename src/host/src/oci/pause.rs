//! The pause program: it holds a pod's namespaces, reaps what is orphaned to it and ends on TERM or INT.
//! A few machine instructions of ours in the smallest static ELF, so that no registry is needed for the first pod.

use std::path::Path;

use super::archive::{Entry, ImageArchive, OciError, Source, WrittenImage};

/// Name under which the pause image is imported; the runtime's configuration names it as its sandbox image.
pub const PAUSE_IMAGE: &str = "localhost/longshore-pause:1";

/// Writes the pause image for this machine's architecture as an OCI archive.
pub fn pause_archive(path: &Path) -> Result<WrittenImage, OciError> {
    let program =
        program(std::env::consts::ARCH).ok_or_else(|| OciError::Architecture(std::env::consts::ARCH.to_owned()))?;
    ImageArchive {
        name: PAUSE_IMAGE.to_owned(),
        entries: vec![Entry::File { path: "/pause".to_owned(), mode: 0o755, source: Source::Bytes(program) }],
        entrypoint: vec!["/pause".to_owned()],
        ..ImageArchive::default()
    }
    .write(path)
}

/// Returns the whole ELF file, or nothing for an architecture we have no code for.
pub(super) fn program(architecture: &str) -> Option<Vec<u8>> {
    match architecture {
        "x86_64" => Some(elf(0x3e, X86_64)),
        "aarch64" => {
            let code: Vec<u8> = AARCH64.iter().flat_map(|word| word.to_le_bytes()).collect();
            Some(elf(0xb7, &code))
        }
        _ => None,
    }
}

/// Blocks TERM, INT and CHLD and waits for them in turn: a blocked signal is kept even for a namespace's first
/// process, for which the kernel drops signals without a handler, and no handler code is needed.
#[rustfmt::skip]
const X86_64: &[u8] = &[
    // rt_sigprocmask(SIG_BLOCK, {TERM, INT, CHLD}, NULL, 8)
    0xb8, 0x02, 0x40, 0x01, 0x00,             // mov  eax, 0x14002
    0x50,                                     // push rax
    0x31, 0xff,                               // xor  edi, edi
    0x48, 0x89, 0xe6,                         // mov  rsi, rsp
    0x31, 0xd2,                               // xor  edx, edx
    0x41, 0xba, 0x08, 0x00, 0x00, 0x00,       // mov  r10d, 8
    0xb8, 0x0e, 0x00, 0x00, 0x00,             // mov  eax, 14
    0x0f, 0x05,                               // syscall
    // wait: rt_sigtimedwait(set, NULL, NULL, 8)
    0x48, 0x89, 0xe7,                         // mov  rdi, rsp
    0x31, 0xf6,                               // xor  esi, esi
    0x31, 0xd2,                               // xor  edx, edx
    0x41, 0xba, 0x08, 0x00, 0x00, 0x00,       // mov  r10d, 8
    0xb8, 0x80, 0x00, 0x00, 0x00,             // mov  eax, 128
    0x0f, 0x05,                               // syscall
    0x83, 0xf8, 0x11,                         // cmp  eax, 17 (CHLD)
    0x74, 0x13,                               // je   reap
    0x83, 0xf8, 0x0f,                         // cmp  eax, 15 (TERM)
    0x74, 0x05,                               // je   leave
    0x83, 0xf8, 0x02,                         // cmp  eax, 2 (INT)
    0x75, 0xdd,                               // jne  wait
    // leave: exit(0)
    0x31, 0xff,                               // xor  edi, edi
    0xb8, 0x3c, 0x00, 0x00, 0x00,             // mov  eax, 60
    0x0f, 0x05,                               // syscall
    // reap: wait4(-1, NULL, WNOHANG, NULL) until none is left
    0x48, 0xc7, 0xc7, 0xff, 0xff, 0xff, 0xff, // mov  rdi, -1
    0x31, 0xf6,                               // xor  esi, esi
    0xba, 0x01, 0x00, 0x00, 0x00,             // mov  edx, 1
    0x45, 0x31, 0xd2,                         // xor  r10d, r10d
    0xb8, 0x3d, 0x00, 0x00, 0x00,             // mov  eax, 61
    0x0f, 0x05,                               // syscall
    0x85, 0xc0,                               // test eax, eax
    0x7f, 0xe4,                               // jg   reap
    0xeb, 0xb6,                               // jmp  wait
];

const SVC: u32 = 0xd400_0001;

const fn movz(register: u32, value: u32) -> u32 {
    0xd280_0000 | value << 5 | register
}

const fn compare_w0(value: u32) -> u32 {
    0x7100_001f | value << 10
}

/// `b.cond` over `words` instructions, counted from the branch itself.
const fn branch_if(condition: u32, words: i32) -> u32 {
    0x5400_0000 | ((words.cast_unsigned() & 0x7_ffff) << 5) | condition
}

const fn branch(words: i32) -> u32 {
    0x1400_0000 | (words.cast_unsigned() & 0x3ff_ffff)
}

const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
const GREATER: u32 = 12;

#[rustfmt::skip]
const AARCH64: &[u32] = &[
    // rt_sigprocmask(SIG_BLOCK, {TERM, INT, CHLD}, NULL, 8)
    movz(1, 0x4002), 0xf2a0_0021,             //  0: movz x1, 0x4002 ; movk x1, 1, lsl 16
    0xd100_43ff, 0xf900_03e1,                 //  2: sub sp, sp, 16 ; str x1, [sp]
    movz(0, 0), 0x9100_03e1,                  //  4: x0 = 0 ; mov x1, sp
    movz(2, 0), movz(3, 8), movz(8, 135), SVC, // 6
    // wait (10): rt_sigtimedwait(set, NULL, NULL, 8)
    0x9100_03e0, movz(1, 0), movz(2, 0),      // 10: mov x0, sp
    movz(3, 8), movz(8, 137), SVC,            // 13
    compare_w0(17), branch_if(EQUAL, 8),      // 16: CHLD: 17 → reap (25)
    compare_w0(15), branch_if(EQUAL, 3),      // 18: TERM: 19 → leave (22)
    compare_w0(2), branch_if(NOT_EQUAL, -11), // 20: not INT: 21 → wait (10)
    // leave (22): exit(0)
    movz(0, 0), movz(8, 93), SVC,             // 22
    // reap (25): wait4(-1, NULL, WNOHANG, NULL) until none is left
    0x9280_0000, movz(1, 0), movz(2, 1),      // 25: movn x0, 0
    movz(3, 0), movz(8, 260), SVC,            // 28
    compare_w0(0), branch_if(GREATER, -7),    // 31: 32 → reap (25)
    branch(-23),                              // 33: → wait (10)
];

const BASE: u64 = 0x40_0000;
const HEADERS: u64 = 64 + 56;

/// One read-and-execute segment holding headers and code.
fn elf(machine: u16, code: &[u8]) -> Vec<u8> {
    let size = HEADERS + code.len() as u64;
    let mut file = Vec::new();
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend_from_slice(&2u16.to_le_bytes()); // executable
    file.extend_from_slice(&machine.to_le_bytes());
    file.extend_from_slice(&1u32.to_le_bytes());
    for value in [BASE + HEADERS, 64, 0] {
        file.extend_from_slice(&value.to_le_bytes()); // entry, program headers, no section headers
    }
    file.extend_from_slice(&0u32.to_le_bytes());
    for value in [64u16, 56, 1, 64, 0, 0] {
        file.extend_from_slice(&value.to_le_bytes());
    }
    file.extend_from_slice(&1u32.to_le_bytes()); // load
    file.extend_from_slice(&5u32.to_le_bytes()); // read, execute
    for value in [0, BASE, BASE, size, size, 0x1_0000] {
        file.extend_from_slice(&value.to_le_bytes());
    }
    file.extend_from_slice(code);
    file
}
