//! TLS by an authority that nobody knows.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::NamedTempFile;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// What answers as `localhost` with these protocols, and the file with its authority.
pub fn acceptor(alpn: &[&[u8]]) -> (TlsAcceptor, NamedTempFile) {
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_cert = ca.self_signed(&ca_key).unwrap();
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let cert = params.signed_by(&key, &issuer).unwrap();
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), ca_cert.pem()).unwrap();

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![cert.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    (TlsAcceptor::from(Arc::new(config)), file)
}

/// TLS in front of a server that has none: its URL, and the file with its authority.
pub async fn before(server: SocketAddr) -> (String, NamedTempFile) {
    let (acceptor, ca) = acceptor(&[]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not trust us leaves here.
                let Ok(mut client) = acceptor.accept(stream).await else {
                    return;
                };
                if let Ok(mut server) = TcpStream::connect(server).await {
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    (format!("https://localhost:{port}"), ca)
}
