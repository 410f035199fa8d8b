//! The layer's own rules, tested through Vulkan: mappable types, valid ranges, memory types of buffers.

use support::{Result, child, skip};
use vkgdr::ash::vk;

use crate::raw::Raw;
use crate::{aborted, under, validated};

const VISIBLE: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::HOST_VISIBLE;
/// The index of the type of mapped memory.
const MAPPED: u32 = 4;
const SIZE: u64 = 1000;
const ALL: u64 = vk::WHOLE_SIZE;

#[test]
fn memory_that_the_cpu_cannot_see_is_not_mapped() -> Result {
    if validated() {
        return skip("the validation layer ends a process that attempts this");
    }
    under("non-coherent", || {
        let raw = Raw::open()?;
        for (index, flags) in (0..).zip(raw.types()) {
            let memory = raw.allocate(index, SIZE)?;
            let mapped = raw.map(memory, 0, ALL).map_err(|error| error.to_string());
            assert_eq!(mapped.is_ok(), flags.contains(VISIBLE), "type {index}: {mapped:?}");
        }
        Ok(())
    })
}

#[test]
fn unflushed_writes_are_lost_when_the_memory_is_unmapped() -> Result {
    under("non-coherent", || {
        let raw = Raw::open()?;
        let memory = raw.allocate(MAPPED, SIZE)?;
        for (flushed, offset) in [(false, 0), (true, 0), (false, 256), (true, 256)] {
            let value = u8::from(flushed) + 1;
            let pointer = raw.map(memory, offset, SIZE - offset)?;
            // SAFETY: mapped.
            unsafe { pointer.write_volatile(value) };
            if flushed {
                raw.flush(memory, offset, ALL)?;
            }
            raw.unmap(memory);
            let pointer = raw.map(memory, offset, SIZE - offset)?;
            raw.invalidate(memory, offset, ALL)?;
            // SAFETY: mapped.
            assert_eq!(unsafe { pointer.read_volatile() } == value, flushed, "at {offset}");
            raw.unmap(memory);
        }
        Ok(())
    })
}

#[test]
fn a_buffer_may_lie_in_every_type() -> Result {
    under("rebar", || {
        let raw = Raw::open()?;
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER;
        let info = vk::BufferCreateInfo::default().size(SIZE).usage(usage);
        // SAFETY: a live device, and valid for the call.
        let buffer = unsafe { raw.device.create_buffer(&info, None) }?;
        // SAFETY: the buffer was just created.
        let requirements = unsafe { raw.device.get_buffer_memory_requirements(buffer) };
        // SAFETY: nothing uses it any more.
        unsafe { raw.device.destroy_buffer(buffer, None) };
        assert_eq!(requirements.memory_type_bits, 0b11111);
        for index in 0..5 {
            let memory = raw.allocate(index, requirements.size)?;
            // SAFETY: a live device, and valid for the call.
            let buffer = unsafe { raw.device.create_buffer(&info, None) }?;
            // SAFETY: both are of this device, and the type is allowed.
            unsafe { raw.device.bind_buffer_memory(buffer, memory, 0) }?;
            // SAFETY: nothing uses it any more.
            unsafe { raw.device.destroy_buffer(buffer, None) };
        }
        Ok(())
    })
}

/// Valid ranges of a mapping of bytes 256..1000.
const ALLOWED: [(u64, u64); 6] = [(256, 256), (256, 744), (512, 488), (768, 232), (256, ALL), (768, ALL)];
/// Invalid ranges, with the last part of the violated rule's name.
const FORBIDDEN: [(u64, u64, &str); 7] = [
    (300, 256, "offset-00687"),
    (300, ALL, "offset-00687"),
    (256, 100, "size-01390"),
    (512, 512, "size-00685"),
    (0, 256, "size-00685"),
    (1024, 256, "size-00685"),
    (0, ALL, "size-00686"),
];

/// Flushes the range with this index in `FORBIDDEN`.
fn break_a_rule(role: &str) -> Result {
    let (offset, size, _) = FORBIDDEN[role.parse::<usize>()?];
    let raw = Raw::open()?;
    let memory = raw.allocate(MAPPED, SIZE)?;
    raw.map(memory, 256, SIZE - 256)?;
    for (offset, size) in ALLOWED {
        raw.flush(memory, offset, size)?;
        raw.invalidate(memory, offset, size)?;
    }
    eprintln!("now");
    raw.flush(memory, offset, size)
}

#[test]
fn a_range_that_breaks_vulkans_rules_ends_the_process_with_the_rule() -> Result {
    if let Some(role) = child::role() {
        return break_a_rule(&role);
    }
    // The validation layer is above this one and reports first.
    let speaker = if validated() { "validation: " } else { "vklayer: vkFlushMappedMemoryRanges: " };
    for (index, (_, _, rule)) in FORBIDDEN.iter().enumerate() {
        let Some(errors) = aborted("non-coherent", &index.to_string())? else { return Ok(()) };
        assert!(errors.starts_with(speaker) && errors.contains(rule), "{rule}: {errors}");
    }
    Ok(())
}

/// The rules that a mapping beyond its memory and an allocation of no bytes violate, by the last part of their names. The
/// second had another number in earlier versions of Vulkan.
const SIZES: [&str; 2] = ["size-00681", "allocationSize-0"];

fn break_a_rule_of_sizes(role: &str) -> Result {
    let raw = Raw::open()?;
    eprintln!("now");
    if role == SIZES[0] {
        raw.map(raw.allocate(MAPPED, SIZE)?, 256, SIZE).map(drop)
    } else {
        raw.allocate(MAPPED, 0).map(drop)
    }
}

#[test]
fn a_size_that_breaks_vulkans_rules_ends_the_process_with_the_rule() -> Result {
    if let Some(role) = child::role() {
        return break_a_rule_of_sizes(&role);
    }
    for rule in SIZES {
        let Some(errors) = aborted("non-coherent", rule)? else { return Ok(()) };
        assert!(errors.contains(rule), "{rule}: {errors}");
    }
    Ok(())
}

#[test]
fn memory_of_the_program_is_imported_where_the_cpu_sees_it() -> Result {
    for (profile, types) in [("rebar", 0b01100), ("gb10", 0b10)] {
        under(profile, || {
            let raw = Raw::open()?;
            let page = vec![0_u8; 8192];
            let first = page.as_ptr().map_addr(|address| address.next_multiple_of(4096));
            match raw.types_of_host_memory(first)? {
                Some(found) => assert_eq!(found, types),
                None => skip("the driver does not import memory of the program")?,
            }
            Ok(())
        })?;
    }
    Ok(())
}
