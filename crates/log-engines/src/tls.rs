//! TLS by rustls: which servers are believed, and our own certificate.
//!
//! Invariant: a server that is not verified is only spoken to where the address says so. Read next: `postgres/session.rs`.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::address::{Address, Encryption};

/// Where systems keep the authorities that they believe.
const OF_THIS_MACHINE: &[&str] =
    &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];

/// The certificates of a file.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |why: String| format!("{}: {why}", path.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found = found.map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() { Err(wrong("there is no certificate in it; it is wanted in PEM".into())) } else { Ok(found) }
}

/// The authorities that sign certificates of servers that are believed.
pub(crate) fn authorities(address: &Address) -> Result<Vec<CertificateDer<'static>>, String> {
    if let Some(path) = &address.authorities {
        return certificates(path);
    }
    let found = OF_THIS_MACHINE.iter().map(Path::new).find(|path| path.is_file());
    let none = "no file with authorities is on this machine; name one in the address (sslrootcert=, cacert=)";
    certificates(found.ok_or(none)?)
}

/// What a connection to PostgreSQL is encrypted by.
pub(crate) fn config(address: &Address) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = if address.encryption == Encryption::Verified {
        let mut roots = RootCertStore::empty();
        // A file of a system may have some that are too odd; others of it are good.
        roots.add_parsable_certificates(authorities(address)?);
        builder.with_root_certificates(roots)
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
    };
    let Some((certificate, key)) = &address.own else { return Ok(builder.with_no_client_auth()) };
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{}: {error}", key.display()))?;
    let own = builder.with_client_auth_cert(certificates(certificate)?, secret);
    own.map_err(|error| format!("{}: {error}", certificate.display()))
}

/// Believes any server: sslmode=prefer and sslmode=require ask for no more.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
