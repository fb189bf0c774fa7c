//! A key pair for one use, the text form of its public half, and random tokens.

use record::hex;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use wire::files::{Hex, PublicKey};

/// The bytes before an Ed25519 key in its DER form (RFC 8410, SubjectPublicKeyInfo).
const ED25519_SPKI: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// `None` if the SubjectPublicKeyInfo holds anything else than an Ed25519 key.
pub(crate) fn from_spki(spki: &[u8]) -> Option<PublicKey> {
    let key = spki.strip_prefix(&ED25519_SPKI)?;
    key.try_into().ok().map(Hex)
}

/// 128 random bits in hexadecimal.
pub fn token() -> io::Result<String> {
    let mut bits = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bits)?;
    Ok(hex::encode(&bits))
}

#[derive(Clone)]
pub struct Identity {
    pub(crate) key: Arc<CertifiedKey>,
    public_key: PublicKey,
}

impl Identity {
    pub fn new() -> io::Result<Identity> {
        Identity::from_pkcs8(&new_pkcs8()?)
    }

    /// A new key pair, and its private half for [`Identity::from_secret`]: whoever has that is
    /// admitted as this identity.
    pub fn with_secret() -> io::Result<(Identity, String)> {
        let pkcs8 = new_pkcs8()?;
        Ok((Identity::from_pkcs8(&pkcs8)?, hex::encode(&pkcs8)))
    }

    pub fn from_secret(text: &str) -> io::Result<Identity> {
        let wrong = || io::Error::other("the secret is not a private key");
        Identity::from_pkcs8(&hex::decode(text).ok_or_else(wrong)?).map_err(|_| wrong())
    }

    fn from_pkcs8(pkcs8: &[u8]) -> io::Result<Identity> {
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8)
            .map_err(|rejected| io::Error::other(rejected.to_string()))?;
        let public_key = Hex(pair
            .public_key()
            .as_ref()
            .try_into()
            .map_err(io::Error::other)?);
        let signing = any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8)).map_err(io::Error::other)?;
        let spki = CertificateDer::from([&ED25519_SPKI[..], &public_key.0].concat());
        Ok(Identity {
            key: Arc::new(CertifiedKey::new(vec![spki], signing)),
            public_key,
        })
    }

    /// The other side must know it.
    pub fn public_key(&self) -> PublicKey {
        self.public_key
    }
}

fn new_pkcs8() -> io::Result<Vec<u8>> {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
    let pkcs8 = pkcs8.map_err(|_| io::Error::other("no key pair can be made"))?;
    Ok(pkcs8.as_ref().to_vec())
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.public_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_makes_the_same_key_pair() {
        let (identity, secret) = Identity::with_secret().unwrap();
        let again = Identity::from_secret(&secret).unwrap();
        assert_eq!(again.public_key(), identity.public_key());
        let changed = format!("{}00", &secret[2..]);
        for wrong in ["", "0", "zz", "é", &secret[2..], &changed] {
            assert!(Identity::from_secret(wrong).is_err(), "{wrong}");
        }
        assert!(!format!("{identity:?}").contains(&secret[40..80]));
    }

    #[test]
    fn no_two_identities_are_alike() {
        assert_ne!(
            Identity::new().unwrap().public_key(),
            Identity::new().unwrap().public_key()
        );
    }
}
