//! Handshakes: each side tells its key and proves that it has the private one; a client believes one key only.
//!
//! Invariant: no signature of a handshake is believed that was not verified. Read next: `stream.rs`.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, DistinguishedName, Error,
    ServerConfig, ServerConnection, SignatureScheme,
};

use crate::key::{MachineKey, PublicKey};
use crate::stream::{TlsError, TlsReader, TlsWriter, shake_hands};

/// TLS wants a name of a server; ours have none, and it is not sent.
const NO_NAME: &str = "stere.invalid";

fn provider() -> Arc<CryptoProvider> {
    // The first is the fastest where processors help with it; they both can.
    let cipher_suites = vec![cipher_suite::TLS13_AES_128_GCM_SHA256, cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    Arc::new(CryptoProvider { cipher_suites, ..default_provider() })
}

fn stranger() -> Error {
    Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)
}

/// Believes one key, or any that the other side has the private one of: then somebody else looks at it.
#[derive(Debug)]
struct ByKey {
    believed: Option<PublicKey>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ByKey {
    fn new(believed: Option<PublicKey>, provider: &CryptoProvider) -> Arc<ByKey> {
        Arc::new(ByKey { believed, algorithms: provider.signature_verification_algorithms })
    }

    fn look_at(&self, told: &CertificateDer<'_>) -> Result<(), Error> {
        let key = PublicKey::of_told(told).ok_or_else(stranger)?;
        if self.believed.is_none_or(|believed| believed == key) { Ok(()) } else { Err(stranger()) }
    }

    fn verify(
        &self,
        message: &[u8],
        told: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(told.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
    }
}

/// What both sides' verifiers do alike.
macro_rules! by_key {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(stranger())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            told: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.verify(message, told, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for ByKey {
    fn verify_server_cert(
        &self,
        told: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.look_at(told).map(|()| ServerCertVerified::assertion())
    }

    by_key!();
}

impl ClientCertVerifier for ByKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        told: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.look_at(told).map(|()| ClientCertVerified::assertion())
    }

    by_key!();
}

/// The client's side: the owner has to be the one with this key.
///
/// # Errors
/// Where the connection breaks, or the other side has another key or cannot prove that it has this one.
pub fn connect<R: Read, W: Write>(
    own: &MachineKey,
    owner: PublicKey,
    reader: R,
    writer: W,
) -> Result<(TlsReader<R>, TlsWriter<W>), TlsError> {
    let provider = provider();
    let verifier = ByKey::new(Some(owner), &provider);
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config =
        builder.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own.certified())));
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    let name = ServerName::try_from(NO_NAME).map_err(|_| Error::General("no name".into()))?;
    let connection = ClientConnection::new(Arc::new(config), name)?;
    let (reader, writer, key) = shake_hands(Connection::Client(connection), reader, writer)?;
    // It was looked at; whoever changes the verifier is told.
    assert!(key == owner, "the owner's key is the one that is believed");
    Ok((reader, writer))
}

/// The owner's side; gives the key that the other side has proven to have. Whether it may connect is to be decided.
///
/// # Errors
/// Where the connection breaks, or the other side cannot prove that it has the key that it tells.
pub fn accept<R: Read, W: Write>(
    own: &MachineKey,
    reader: R,
    writer: W,
) -> Result<(TlsReader<R>, TlsWriter<W>, PublicKey), TlsError> {
    let provider = provider();
    let verifier = ByKey::new(None, &provider);
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13])?;
    let builder = builder.with_client_cert_verifier(verifier);
    let mut config = builder.with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own.certified())));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    let connection = ServerConnection::new(Arc::new(config))?;
    shake_hands(Connection::Server(connection), reader, writer)
}
