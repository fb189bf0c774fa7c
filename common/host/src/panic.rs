//! What a panic does to a program.

/// A panic in any thread ends the program, because the others would wait for that thread, or go on
/// without it unnoticed. Threads of the name `except` may panic alone.
pub fn abort_on_panic(except: Option<&'static str>) {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        if except.is_none() || std::thread::current().name() != except {
            std::process::abort();
        }
    }));
}
