//! TLS 1.3 connections between two sides that know each other's public keys.
//!
//! Each side makes an [`Identity`] for this one use and sends its [`PublicKey`] over a channel that
//! is already trusted, such as ssh. Each must prove that it has the key that it sent, or is
//! refused; there are no certificates, names or authorities (RFC 7250, raw public keys).

mod admission;
mod connection;
mod identity;
mod pinned;

pub use admission::{Entrance, Limits, PeerGreeting, ServedPort};
pub use connection::{Guests, TlsConnection, is_wrong_key};
pub use identity::{Identity, token};
pub use wire::files::PublicKey;
