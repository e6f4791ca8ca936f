//! Signed tokens (RFC 7515, compact form) with one key: ES256 for the keys we make, RS256 for those that kubeadm made.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use longshore_transport::pki::{PkiError, private_key_from_pem, public_key_from_pem};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_SHA256, RsaKeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// No token of ours comes near this.
const MAX_TOKEN: usize = 16 * 1024;

/// Why the key for service-account tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A file is no PEM of the right kind.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// The key is of a kind or size that is not supported.
    #[error("service-account key: {0}; want ECDSA P-256 or RSA of 2048 to 8192 bits")]
    Unsupported(String),
    /// `sa.pub` is not the public half of `sa.key`.
    #[error("sa.pub is not the public half of sa.key")]
    Mismatch,
}

enum Kind {
    Ecdsa(Box<EcdsaKeyPair>),
    Rsa(Box<RsaKeyPair>),
}

/// The key that signs service-account tokens.
pub struct SigningKey {
    kind: Kind,
    id: String,
    random: SystemRandom,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// Takes up `sa.key` and `sa.pub`.
    pub fn from_pem(private_pem: &str, public_pem: &str) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let private = private_key_from_pem(private_pem.as_bytes(), "sa.key")?;
        let public = public_key_from_pem(public_pem.as_bytes(), "sa.pub")?;
        let der = private.secret_der();
        let kind = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random)
            .map(|key| Kind::Ecdsa(Box::new(key)))
            .or_else(|_| RsaKeyPair::from_pkcs8(der).map(|key| Kind::Rsa(Box::new(key))))
            .or_else(|_| RsaKeyPair::from_der(der).map(|key| Kind::Rsa(Box::new(key))))
            .map_err(|error| KeyError::Unsupported(error.to_string()))?;
        let key = Self { kind, id: URL_SAFE_NO_PAD.encode(Sha256::digest(&public)), random };
        // A SubjectPublicKeyInfo ends with the key itself, for both kinds.
        if public.ends_with(key.public()) { Ok(key) } else { Err(KeyError::Mismatch) }
    }

    /// Returns the key's id as it stands in each token's head.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns by which algorithm it signs, as RFC 7518 names it.
    pub fn algorithm(&self) -> &'static str {
        match self.kind {
            Kind::Ecdsa(_) => "ES256",
            Kind::Rsa(_) => "RS256",
        }
    }

    fn public(&self) -> &[u8] {
        match &self.kind {
            Kind::Ecdsa(key) => key.public_key().as_ref(),
            Kind::Rsa(key) => key.public_key().as_ref(),
        }
    }

    /// Returns the public half as a JSON Web Key (RFC 7517).
    pub fn public_jwk(&self) -> Value {
        let mut jwk = match &self.kind {
            // An uncompressed point: a byte that says so, then the two coordinates.
            Kind::Ecdsa(_) => {
                let (x, y) = self.public().get(1..).map(|point| point.split_at(point.len() / 2)).unwrap_or_default();
                json!({"kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y)})
            }
            Kind::Rsa(key) => {
                let PublicKeyComponents::<Vec<u8>> { n, e } = key.public_key().into();
                json!({"kty": "RSA", "n": encode(&n), "e": encode(&e)})
            }
        };
        for (name, value) in [("use", "sig"), ("alg", self.algorithm()), ("kid", self.id())] {
            jwk[name] = json!(value);
        }
        jwk
    }

    /// Returns a signed token with these claims.
    pub fn sign(&self, claims: &Value) -> Result<String, KeyError> {
        let head = json!({"alg": self.algorithm(), "kid": self.id});
        let text = format!("{}.{}", encode(head.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        let failed = |_| KeyError::Unsupported("signing did not work".to_owned());
        let signature = match &self.kind {
            Kind::Ecdsa(key) => key.sign(&self.random, text.as_bytes()).map_err(failed)?.as_ref().to_vec(),
            Kind::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &self.random, text.as_bytes(), &mut signature).map_err(failed)?;
                signature
            }
        };
        Ok(format!("{text}.{}", encode(&signature)))
    }

    /// Returns the claims of a token that this key signed; nothing about them has been checked.
    pub fn verify(&self, token: &str) -> Option<Value> {
        if token.len() > MAX_TOKEN {
            return None;
        }
        let (text, signature) = token.rsplit_once('.')?;
        let (head, claims) = text.split_once('.')?;
        let head: Value = serde_json::from_slice(&decode(head)?).ok()?;
        // The algorithm is ours to choose, never the token's.
        if head.get("alg")?.as_str()? != self.algorithm() {
            return None;
        }
        let signature = decode(signature)?;
        let checked = match self.kind {
            Kind::Ecdsa(_) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.public()).verify(text.as_bytes(), &signature)
            }
            Kind::Rsa(_) => {
                UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, self.public()).verify(text.as_bytes(), &signature)
            }
        };
        checked.ok()?;
        serde_json::from_slice(&decode(claims)?).ok()
    }
}

/// Returns a token's claims without any check: only to choose who shall check it.
pub(super) fn peek(token: &str) -> Option<Value> {
    let claims = token.split('.').nth(1).filter(|_| token.len() <= MAX_TOKEN)?;
    serde_json::from_slice(&decode(claims)?).ok()
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}
