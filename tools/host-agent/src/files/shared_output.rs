//! The output of a conversation about files, to which several threads write.

use crate::output::Output;
use parking_lot::Mutex;
use wire::Event;
use wire::files::FileEvent;

/// The output of a conversation, shared by threads.
pub struct SharedOutput(Mutex<Output>);

impl SharedOutput {
    pub fn new(output: Output) -> SharedOutput {
        SharedOutput(Mutex::new(output))
    }

    /// From here on, events go to another output.
    pub fn redirect(&self, output: Output) {
        *self.0.lock() = output;
    }

    pub fn send(&self, event: FileEvent) {
        self.send_with(event, &[]);
    }

    pub fn send_with(&self, event: FileEvent, body: &[u8]) {
        self.0.lock().event_with(&Event::File(event), body);
    }

    pub fn event(&self, event: &Event) {
        self.0.lock().event(event);
    }

    pub fn is_closed(&self) -> bool {
        self.0.lock().is_closed()
    }
}
