//! TLS 1.3 connections between two sides that know each other's public keys.
//!
//! Each side makes an [`Identity`] for this one use and sends the other its [`PublicKey`] over a
//! channel that is already trusted, such as ssh. Both must prove that they have the key that was
//! sent; there are no certificates, names or authorities (RFC 7250, raw public keys). A peer
//! without that key is refused.

mod admission;
mod connection;
mod identity;
mod pinned;

pub use admission::{Entrance, Limits, PeerGreeting, ServedPort};
pub use connection::{Guests, TlsConnection, is_wrong_key};
pub use identity::{Identity, PublicKey, token};
