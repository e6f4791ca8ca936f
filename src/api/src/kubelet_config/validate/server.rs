//! Rules of the HTTPS server, its TLS settings and the sockets.

use serde_json::Value;

use super::{Rules, is_address};
use crate::kubelet_config::schema::get;

/// Cipher suites by Go's names, with whether they are thought safe. TLS 1.3 suites cannot be chosen but may be named.
const CIPHERS: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    // Insecure ones, allowed with a warning upstream.
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

impl Rules<'_> {
    pub(super) fn server(&mut self) {
        for path in ["address", "healthzBindAddress"] {
            let address = self.text(path);
            if !is_address(address) {
                let message = format!("{address:?} is not an IP address");
                self.fault(path, message);
            }
        }
        let suites: Vec<String> = self.texts("tlsCipherSuites").into_iter().map(str::to_owned).collect();
        if self.text("tlsMinVersion") != "VersionTLS13" {
            for suite in suites.iter().filter(|suite| !CIPHERS.contains(&suite.as_str())) {
                self.fault("tlsCipherSuites", format!("cipher suite {suite} not supported or doesn't exist"));
            }
        }
        let curves = get(self.config, "tlsCurvePreferences").and_then(Value::as_array);
        let curves: Vec<i64> = curves.into_iter().flatten().filter_map(Value::as_i64).collect();
        for (index, curve) in curves.iter().enumerate() {
            if !(1..=65535).contains(curve) {
                self.fault("tlsCurvePreferences", super::out_of_range(*curve, 1, 65535));
            } else if curves[..index].contains(curve) {
                self.fault("tlsCurvePreferences", format!("{curve} is named twice"));
            }
        }
        let logs = self.text("podLogsDir");
        let is_clean = logs.starts_with('/')
            && logs.is_ascii()
            && (logs == "/" || logs[1..].split('/').all(|part| !matches!(part, "" | "." | "..")));
        if !is_clean {
            let message = format!("{logs:?} must be an absolute, normalized path of ASCII characters");
            self.fault("podLogsDir", message);
        }
        if self.text("containerRuntimeEndpoint").is_empty() {
            self.fault("containerRuntimeEndpoint", "must not be empty");
        }
        if self.is_true("serverTLSBootstrap") && !self.gates.is_enabled("RotateKubeletServerCertificate") {
            self.fault("serverTLSBootstrap", "needs the feature gate RotateKubeletServerCertificate");
        }
    }
}
