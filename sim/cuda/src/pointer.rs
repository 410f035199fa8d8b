//! Pointer attributes: what an address belongs to.

use crate::boundary::exports;
use crate::code::{Code, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::context;
use crate::ffi::{In, Out};
use crate::memory::table::{self, Found, Kind};

const MEMORY_TYPE_HOST: u32 = 1;
const MEMORY_TYPE_DEVICE: u32 = 2;
// What the plural function reports as the device of an address that it does not know.
const INVALID_ORDINAL: i32 = -2;
const READ_WRITE: u32 = 3;

const SYNC_MEMOPS: u32 = 6;

/// A value of the type that the attribute is documented to have.
enum Value {
    Bool(bool),
    Int(i32),
    Uint(u32),
    Wide(u64),
    Pointer(usize),
}

impl Value {
    fn write(self, out: Out<u8>) {
        match self {
            Value::Bool(value) => out.set_if_wanted(u8::from(value)),
            Value::Int(value) => out.cast().set_if_wanted(value),
            Value::Uint(value) => out.cast().set_if_wanted(value),
            Value::Wide(value) => out.cast().set_if_wanted(value),
            Value::Pointer(value) => out.cast().set_if_wanted(value),
        }
    }
}

// The numbers are those of CUpointer_attribute.
fn value(attribute: u32, address: usize, found: &Found) -> Result<Value, Code> {
    let window = &found.window;
    let device_side = found.kind.is_device();
    Ok(match attribute {
        1 => Value::Pointer(window.owner.context),
        2 if device_side || found.kind == Kind::Managed => Value::Uint(MEMORY_TYPE_DEVICE),
        2 => Value::Uint(MEMORY_TYPE_HOST),
        3 => Value::Pointer(address),
        4 if device_side => return Err(INVALID_VALUE),
        4 => Value::Pointer(address),
        5 => return Err(NOT_SUPPORTED),
        SYNC_MEMOPS => Value::Uint(0),
        7 => Value::Wide(window.id),
        8 => Value::Bool(found.kind == Kind::Managed),
        9 => Value::Int(window.owner.device),
        10 | 15 | 21 => Value::Bool(false),
        11 | 19 => Value::Pointer(window.address),
        12 | 18 => Value::Pointer(window.size),
        13 => Value::Bool(true),
        14 => Value::Wide(0),
        16 => Value::Uint(READ_WRITE),
        17 => Value::Pointer(0),
        20 => Value::Wide(window.id),
        22 => Value::Int(0),
        _ => return Err(INVALID_VALUE),
    })
}

// What the plural function writes where an attribute has no value.
fn nothing(attribute: u32) -> Option<Value> {
    Some(match attribute {
        1 | 3 | 4 | 11 | 12 | 17 | 18 | 19 => Value::Pointer(0),
        2 | SYNC_MEMOPS | 16 => Value::Uint(0),
        7 | 14 | 20 => Value::Wide(0),
        8 | 10 | 13 | 15 | 21 => Value::Bool(false),
        9 => Value::Int(INVALID_ORDINAL),
        22 => Value::Int(0),
        _ => return None,
    })
}

fn get(out: Out<u8>, attribute: u32, address: usize) -> Outcome {
    out.required()?;
    context::usable()?;
    let found = table::find(address).ok_or(INVALID_VALUE)?;
    value(attribute, address, &found)?.write(out);
    Ok(())
}

fn get_many(count: u32, attributes: In<u32>, results: In<Out<u8>>, address: usize) -> Outcome {
    context::usable()?;
    let found = table::find(address);
    for index in 0..usize::try_from(count).map_err(|_| INVALID_VALUE)? {
        let attribute = attributes.element(index)?;
        let result = results.element(index)?;
        result.required()?;
        let known = found.as_ref().and_then(|found| value(attribute, address, found).ok());
        known.or_else(|| nothing(attribute)).ok_or(INVALID_VALUE)?.write(result);
    }
    Ok(())
}

// Only CU_POINTER_ATTRIBUTE_SYNC_MEMOPS can be set. It is checked, and changes nothing here.
fn set(value: In<u32>, attribute: u32, address: usize) -> Outcome {
    context::usable()?;
    value.get()?;
    let found = table::find(address).ok_or(INVALID_VALUE)?;
    if attribute == SYNC_MEMOPS && found.kind.is_device() { Ok(()) } else { Err(INVALID_VALUE) }
}

exports! {
    cuPointerGetAttribute => get(out: Out<u8>, attribute: u32, address: usize);
    cuPointerGetAttributes => get_many(count: u32, attributes: In<u32>, results: In<Out<u8>>, address: usize);
    cuPointerSetAttribute => set(value: In<u32>, attribute: u32, address: usize);
}
