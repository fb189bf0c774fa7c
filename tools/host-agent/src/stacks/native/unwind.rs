//! From a place in the code and a stack pointer to the callers, by the tables for exceptions.
//!
//! Of the processor's registers the kernel tells those two alone. That is enough wherever functions
//! on the way have saved the others on the stack, as those that call the kernel do; where a caller
//! needs one that nobody has saved, the way ends.

use super::images::Images;
use gimli::{CfaRule, Register, RegisterRule};

/// A stack that is longer was misread.
const MAX_DEPTH: usize = 256;

/// What the processor's manual for such tables calls the registers.
struct Numbers {
    stack_pointer: u16,
    return_address: u16,
    /// A function gives these back as it got them.
    saved: &'static [u16],
}

#[cfg(target_arch = "x86_64")]
const NUMBERS: Option<Numbers> = Some(Numbers {
    stack_pointer: 7,
    return_address: 16,
    saved: &[3, 6, 12, 13, 14, 15],
});
#[cfg(target_arch = "aarch64")]
const NUMBERS: Option<Numbers> = Some(Numbers {
    stack_pointer: 31,
    return_address: 30,
    saved: &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29],
});
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const NUMBERS: Option<Numbers> = None;

/// Whether callers can be found on this type of machine.
#[cfg(test)]
pub const IS_KNOWN: bool = NUMBERS.is_some();

/// On aarch64 the processor may sign return addresses in the bits above these.
const ADDRESS_BITS: u64 = (1 << 48) - 1;

/// Known values of registers, by their numbers.
type Registers = [Option<u64>; 33];

/// The places on the stack, the innermost first. Of a caller it is the last byte of its call: the
/// next one may belong to another function.
pub fn walk(
    (address, stack_pointer): (u64, u64),
    read: impl Fn(u64) -> Option<u64>,
    images: &Images<'_>,
) -> Vec<u64> {
    let mut addresses = vec![address];
    let Some(numbers) = NUMBERS else {
        return addresses;
    };
    let mut registers: Registers = [None; 33];
    registers[usize::from(numbers.stack_pointer)] = Some(stack_pointer);
    while addresses.len() < MAX_DEPTH {
        let Some(address) = addresses.last() else {
            break;
        };
        let Some(caller) = caller(&numbers, *address, &registers, &read, images) else {
            break;
        };
        let at = |registers: &Registers| registers[usize::from(numbers.stack_pointer)];
        // a stack grows from caller to called alone
        if at(&caller) <= at(&registers) && addresses.len() > 1 {
            break;
        }
        registers = caller;
        match registers[usize::from(numbers.return_address)] {
            None | Some(0) => break,
            Some(address) => addresses.push((address & ADDRESS_BITS).saturating_sub(1)),
        }
    }
    addresses
}

/// The registers as the caller of the function at a place has them.
fn caller(
    numbers: &Numbers,
    address: u64,
    registers: &Registers,
    read: impl Fn(u64) -> Option<u64>,
    images: &Images<'_>,
) -> Option<Registers> {
    let value = |register: Register| *registers.get(usize::from(register.0))?;
    let row = images.unwind_row(address)?;
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return None;
    };
    let frame = value(register)?.wrapping_add_signed(offset);
    let mut caller: Registers = [None; 33];
    for number in numbers.saved {
        caller[usize::from(*number)] = registers[usize::from(*number)];
    }
    for (register, rule) in row.registers() {
        let Some(known) = caller.get_mut(usize::from(register.0)) else {
            continue;
        };
        *known = match *rule {
            RegisterRule::SameValue => value(*register),
            RegisterRule::Offset(offset) => read(frame.wrapping_add_signed(offset)),
            RegisterRule::ValOffset(offset) => Some(frame.wrapping_add_signed(offset)),
            RegisterRule::Register(other) => value(other),
            _ => None,
        };
    }
    caller[usize::from(numbers.stack_pointer)] = Some(frame);
    Some(caller)
}
