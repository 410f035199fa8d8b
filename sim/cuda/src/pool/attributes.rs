//! The attributes of pools.

use cudarc::driver::sys::{CUmemAllocationType, CUmemLocationType, CUmemPool_attribute as Attribute};

use super::state::Numbers;
use super::table as pools;
use crate::code::{INVALID_VALUE, Outcome};
use crate::ffi::{In, Out};

const FOLLOW_EVENTS: u32 = Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES as u32;
const INTERNAL_DEPENDENCIES: u32 = Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES as u32;
const THRESHOLD: u32 = Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as u32;
const RESERVED: u32 = Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT as u32;
const RESERVED_HIGH: u32 = Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH as u32;
const USED: u32 = Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT as u32;
const USED_HIGH: u32 = Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH as u32;
// Since CUDA 13.2.
const ALLOCATION_TYPE: u32 = 9;
const HANDLE_TYPES: u32 = 10;
const LOCATION_ID: u32 = 11;
const LOCATION_TYPE: u32 = 12;
const MOST: u32 = 13;
const DECOMPRESSION: u32 = 14;

fn reuse(attribute: u32) -> Option<usize> {
    let setting = (FOLLOW_EVENTS..=INTERNAL_DEPENDENCIES).contains(&attribute);
    setting.then(|| usize::try_from(attribute - FOLLOW_EVENTS).ok()).flatten()
}

/// Writes an `int` or a `cuuint64_t`, by attribute.
pub(super) fn get(pool: usize, attribute: u32, out: Out<u64>) -> Outcome {
    out.required()?;
    let pool = pools::get(pool)?;
    let Numbers { used, used_high, reserved, reserved_high, threshold, reuse: settings } = pool.numbers();
    let wide = match attribute {
        THRESHOLD => threshold,
        RESERVED => reserved as u64,
        RESERVED_HIGH => reserved_high as u64,
        USED => used as u64,
        USED_HIGH => used_high as u64,
        MOST => pool.most as u64,
        _ => {
            let value = match (attribute, reuse(attribute)) {
                (_, Some(index)) => settings[index],
                (ALLOCATION_TYPE, _) => CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED as i32,
                (LOCATION_ID, _) => pool.device,
                (LOCATION_TYPE, _) => CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as i32,
                (HANDLE_TYPES | DECOMPRESSION, _) => 0,
                _ => return Err(INVALID_VALUE),
            };
            return out.cast().set(value);
        }
    };
    out.set(wide)
}

/// The high-water marks can be set to 0 only, which resets them.
pub(super) fn set(pool: usize, attribute: u32, value: In<u64>) -> Outcome {
    let pool = pools::get(pool)?;
    if let Some(index) = reuse(attribute) {
        let value = value.cast::<i32>().get()?;
        pool.change(|numbers| numbers.reuse[index] = i32::from(value != 0));
        return Ok(());
    }
    let value = value.get()?;
    match (attribute, value) {
        (THRESHOLD, _) => pool.change(|numbers| numbers.threshold = value),
        (RESERVED_HIGH, 0) => pool.change(|numbers| numbers.reserved_high = numbers.reserved),
        (USED_HIGH, 0) => pool.change(|numbers| numbers.used_high = numbers.used),
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}
