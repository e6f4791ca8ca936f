//! Hashes with a fixed meaning: the container definition's label, the uid of a static pod, back-off keys.
//! All are FNV-1a, so that a value computed by one process is understood by the next.

use serde_json::Value;

const FNV32_OFFSET: u32 = 0x811c_9dc5;
const FNV32_PRIME: u32 = 0x0100_0193;
const FNV64_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV64_PRIME: u64 = 0x0000_0100_0000_01b3;
const FNV128_OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FNV128_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// FNV-1a with 32 bits.
pub fn fnv32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(FNV32_OFFSET, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(FNV32_PRIME))
}

/// FNV-1a with 64 bits.
pub fn fnv64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(FNV64_OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV64_PRIME))
}

/// FNV-1a with 128 bits.
pub fn fnv128(bytes: &[u8]) -> u128 {
    bytes.iter().fold(FNV128_OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(FNV128_PRIME))
}

/// Returns the value of the annotation `io.kubernetes.container.hash`.
///
/// Covers name and image only: they alone cannot change without a new container. The text that is hashed is a dump of the
/// JSON's bytes, so that running containers keep their hash when the agent takes over a node from the stock one.
pub fn container(name: &str, image: &str) -> String {
    let json = format!("{{\"image\":{},\"name\":{}}}", go_json_string(image), go_json_string(name));
    let mut dump = String::with_capacity(json.len() * 4 + 16);
    dump.push_str("([]uint8)[");
    for (index, byte) in json.bytes().enumerate() {
        if index > 0 {
            dump.push(' ');
        }
        dump.push_str(&byte.to_string());
    }
    dump.push(']');
    format!("{:x}", fnv32(dump.as_bytes()))
}

/// Quotes as Go's encoder does, which also escapes `<`, `>` and `&`.
fn go_json_string(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted
        .replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Returns the uid of a static pod without `metadata.uid`: 32 hex digits over the defaulted manifest, the node's name and
/// where the manifest came from (`file:<path>` or `url:<url>`), so that any change gives another pod.
pub fn static_pod_uid(manifest: &Value, node: &str, origin: &str) -> String {
    let mut text = String::new();
    canonical(manifest, &mut text);
    text.push_str("host:");
    text.push_str(node);
    text.push_str(origin);
    format!("{:032x}", fnv128(text.as_bytes()))
}

/// Writes JSON with sorted keys: the map type of the JSON crate must not decide about identity.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (index, key) in keys.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                canonical(map.get(key.as_str()).unwrap_or(&Value::Null), out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                canonical(item, out);
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => out.push_str(&value.to_string()),
    }
}

/// Returns the key under which a container's restarts are counted; another image or other resources start afresh.
pub fn backoff_key(pod_name: &str, namespace: &str, uid: &str, container: &str, image: &str, resources: &str) -> u64 {
    let mut text = String::new();
    for part in [pod_name, namespace, uid, container, image, resources] {
        text.push_str(part);
        text.push('\0');
    }
    fnv64(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fnv_check_values() {
        assert_eq!(fnv32(b"a"), 0xe40c_292c);
        assert_eq!(fnv64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv128(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[test]
    fn container_hash_equals_the_stock_agents() {
        assert_eq!(container("test_container", "foo/image:v1"), "8e45cbd0");
        assert_eq!(container("c", "localhost/busybox:1"), "dd609c43");
        assert_eq!(container("a", "localhost/busybox:1"), "24fe4bad");
        assert_eq!(container("path", "localhost/busybox:1"), "a1660ae");
    }

    #[test]
    fn static_uid_depends_on_content_node_and_origin_only() {
        let a = json!({"metadata": {"name": "x"}, "spec": {"containers": []}});
        let b: Value = serde_json::from_str(r#"{"spec":{"containers":[]},"metadata":{"name":"x"}}"#).unwrap();
        let uid = static_pod_uid(&a, "n1", "file:/m/a.yaml");
        assert_eq!(uid.len(), 32);
        assert_eq!(uid, static_pod_uid(&b, "n1", "file:/m/a.yaml"));
        assert_ne!(uid, static_pod_uid(&a, "n2", "file:/m/a.yaml"));
        assert_ne!(uid, static_pod_uid(&a, "n1", "file:/m/b.yaml"));
        assert_ne!(
            uid,
            static_pod_uid(&json!({"metadata": {"name": "y"}, "spec": {"containers": []}}), "n1", "file:/m/a.yaml")
        );
    }

    #[test]
    fn backoff_key_parts_do_not_run_together() {
        assert_ne!(backoff_key("ab", "c", "u", "x", "i", ""), backoff_key("a", "bc", "u", "x", "i", ""));
    }
}
