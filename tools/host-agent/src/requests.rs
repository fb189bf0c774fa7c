//! Requests on their way in.

use std::io::{self, Read};
use wire::Request;
use wire::codec::{Decoder, Message};

/// stdin, message by message.
#[derive(Debug, Default)]
pub struct Requests {
    decoder: Decoder,
}

impl Requests {
    /// What was read and is no request yet: somebody else goes on there.
    pub fn into_rest(self) -> Vec<u8> {
        self.decoder.into_rest()
    }

    /// The next request; `None` at the end of stdin. An error says why what came is no request.
    pub fn next_request(&mut self) -> Result<Option<Message<Request>>, String> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            if let Some(message) = self.decoder.next_message().map_err(|malformed| malformed.to_string())? {
                return Ok(Some(message));
            }
            match io::stdin().lock().read(&mut buffer) {
                Ok(0) if self.decoder.is_empty() => return Ok(None),
                Ok(0) => return Err("stdin ended within a request".to_owned()),
                Ok(count) => self.decoder.push(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("stdin: {error}")),
            }
        }
    }
}
