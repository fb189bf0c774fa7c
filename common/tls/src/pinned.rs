//! The checks that rustls asks for: whether the other side's key is accepted, and whether it signed
//! with it.

use crate::PublicKey;
use crate::identity::{self, Identity};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::ring::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme, version,
};
use std::io;
use std::sync::Arc;

#[derive(Debug)]
struct Pinned {
    keys: Vec<PublicKey>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn new(keys: Vec<PublicKey>, provider: &CryptoProvider) -> Arc<Pinned> {
        Arc::new(Pinned {
            keys,
            algorithms: provider.signature_verification_algorithms,
        })
    }

    fn check_key(&self, spki: &[u8]) -> Result<(), Error> {
        let known = identity::from_spki(spki).is_some_and(|key| self.keys.contains(&key));
        known.then_some(()).ok_or(Error::InvalidCertificate(
            CertificateError::ApplicationVerificationFailure,
        ))
    }
}

/// What both traits require; rustls has no common trait for it.
macro_rules! raw_ed25519_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            // not compiled in
            Err(Error::General("TLS 1.3 only".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(&**cert);
            verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check_key(end_entity)
            .map(|()| ServerCertVerified::assertion())
    }

    raw_ed25519_signatures!();
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check_key(end_entity)
            .map(|()| ClientCertVerified::assertion())
    }

    raw_ed25519_signatures!();
}

fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites = vec![
        TLS13_AES_128_GCM_SHA256,
        TLS13_CHACHA20_POLY1305_SHA256,
        TLS13_AES_256_GCM_SHA384,
    ];
    if !has_aes() {
        provider.cipher_suites.swap(0, 1);
    }
    Arc::new(provider)
}

/// Without AES instructions, ChaCha20 is cheaper.
#[cfg(target_arch = "x86_64")]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}

pub(crate) fn client(identity: &Identity, server: PublicKey) -> io::Result<Arc<ClientConfig>> {
    let provider = provider();
    let pinned = Pinned::new(vec![server], &provider);
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .map_err(io::Error::other)?;
    let resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(
        &identity.key,
    )));
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(pinned)
        .with_client_cert_resolver(resolver);
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

pub(crate) fn server(
    identity: &Identity,
    clients: Vec<PublicKey>,
) -> io::Result<Arc<ServerConfig>> {
    let provider = provider();
    let pinned = Pinned::new(clients, &provider);
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .map_err(io::Error::other)?;
    let resolver = Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::clone(
        &identity.key,
    )));
    let mut config = builder
        .with_client_cert_verifier(pinned)
        .with_cert_resolver(resolver);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
