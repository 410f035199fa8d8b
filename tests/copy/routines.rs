//! Copies by the CPU through the public methods: every routine, writers, large copies.

use support::driver::is_real;
use support::{HOST_VIEWS, Random, Result, child, cuda, device_read, logs, pattern, refused, supported};
use vkgdr::{CopyRoutine, Error, Memory, MemoryKind, OpenFlags};

const NONE: OpenFlags = OpenFlags::empty();
const VARIABLE: &str = "VKGDR_COPY";

/// Writes and reads at every offset within two cache lines, with every short length and some long ones.
fn copy_around_lines(memory: &Memory) -> Result {
    let mut random = Random::new(7);
    let short = (0..128).flat_map(|offset| (0..=300).step_by(7).map(move |len| (offset, len + offset % 7)));
    let long = [(0, 65_536), (1, 65_535), (63, 300_000), (100, 262_144)];
    let mut expected = pattern(memory.len(), 1);
    memory.write(0, &expected)?;
    memory.flush(..)?;
    for (offset, len) in short.chain(long) {
        let bytes = random.bytes(len);
        memory.write(offset, &bytes)?;
        memory.flush(offset..offset + len)?;
        expected[offset..offset + len].copy_from_slice(&bytes);
        // Includes one byte on either side, which must not change.
        let around = offset.saturating_sub(1)..offset + len + 1;
        assert!(read(memory, around.start, around.len())? == expected[around], "{len} bytes at {offset}");
    }
    assert!(device_read(memory.device_ptr(), memory.len()) == expected, "the device sees wrong bytes");

    cuda::memcpy_htod(memory.device_ptr(), &pattern(memory.len(), 2));
    cuda::synchronize();
    memory.invalidate(..)?;
    assert!(read(memory, 0, memory.len())? == pattern(memory.len(), 2), "the CPU sees wrong bytes");
    Ok(())
}

fn read(region: &Memory, offset: usize, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    region.read(offset, &mut bytes)?;
    Ok(bytes)
}

#[test]
fn every_routine_copies_what_the_device_sees() -> Result {
    if let Some(name) = child::role() {
        let (_context, gpu) = support::open(NONE)?;
        logs::capture();
        for kind in supported(&gpu, &HOST_VIEWS) {
            let memory = Memory::allocate(&gpu, 400_001, kind)?;
            assert_eq!(memory.copy_routine().name(), name, "{kind}");
            copy_around_lines(&memory)?;
        }
        let mut lines = logs::captured();
        // The first allocation may log what it finds out about a real driver.
        lines.retain(|line| !is_real() || line.contains(VARIABLE));
        assert_eq!(lines, [""; 0]);
        child::say(CopyRoutine::chosen());
        return Ok(());
    }
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        copy_around_lines(&Memory::allocate(&gpu, 400_001, kind)?)?;
    }
    for routine in CopyRoutine::ALL {
        if !routine.is_supported() {
            eprintln!("left out: this CPU does not support {routine}");
            continue;
        }
        let mut command = child::command(routine.name())?;
        command.env(VARIABLE, routine.name());
        assert_eq!(child::run(command)?, [routine.name()]);
    }
    Ok(())
}

#[test]
fn an_unavailable_routine_is_named_in_one_log_line() -> Result {
    if child::role().is_some() {
        let (_context, gpu) = support::open(NONE)?;
        logs::capture();
        let memory = Memory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
        for turn in 0..3 {
            memory.write(turn, &[turn; 5])?;
        }
        let mut lines = logs::captured();
        // The first allocation, which chooses the routine, may log what it finds out about a real driver.
        lines.retain(|line| !is_real() || line.contains(VARIABLE));
        assert_eq!(lines.len(), 1, "{lines:?}");
        child::say(&lines[0]);
        child::say(format!("{} {}", memory.copy_routine(), CopyRoutine::chosen()));
        return Ok(());
    }
    let run = |name: &str| {
        let mut command = child::command("copy")?;
        command.env(VARIABLE, name);
        child::run(command)
    };
    let foreign = CopyRoutine::ALL.into_iter().find(|routine| !routine.is_supported());
    for name in ["fastest", "AVX2"].into_iter().chain(foreign.map(CopyRoutine::name)) {
        let said = run(name)?;
        assert!(said[0].starts_with("WARN: VKGDR_COPY=") && said[0].contains(name), "{said:?}");
        assert!(said[0].contains("portable"), "{said:?}");
        // The default is used, which is also that of this process unless VKGDR_COPY forces a routine.
        if std::env::var_os(VARIABLE).is_none() {
            let (_context, gpu) = support::open(NONE)?;
            let memory = Memory::allocate(&gpu, 1, MemoryKind::Mapped)?;
            assert_eq!(said[1], format!("{} {}", memory.copy_routine(), CopyRoutine::chosen()));
        }
    }
    Ok(())
}

#[test]
fn a_fill_repeats_a_pattern_of_several_values_from_the_start_of_its_range() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, 1000, kind)?;
        let mut expected = pattern(1000, 1);
        memory.write(0, &expected)?;
        let (eight, three) = ([1_u8, 2, 3, 4, 5, 6, 7, 8], [9_u8, 9, 8]);
        let fills: [(usize, usize, &[u8]); 6] = [
            (3, 997, &[7]),
            (1, 600, &eight[..2]),
            (2, 996, &eight[..4]),
            (8, 800, &eight),
            (5, 201, &three),
            (0, 9, &[]),
        ];
        for (offset, len, value) in fills {
            memory.fill_pattern(offset..offset + len, value)?;
            expected[offset..offset + len]
                .iter_mut()
                .zip(value.iter().cycle())
                .for_each(|(byte, value)| *byte = *value);
            memory.flush(..)?;
            let what = format!("{kind}, {len} bytes of {value:?} at {offset}");
            assert!(device_read(memory.device_ptr(), 1000) == expected, "{what}: the device's");
            assert!(read(&memory, 0, 1000)? == expected, "{what}: the CPU's");
        }
    }
    Ok(())
}

#[test]
fn what_a_writer_writes_is_within_its_region_and_seen_when_it_ends() -> Result {
    let (_context, gpu) = support::open(OpenFlags::FORCE_NON_COHERENT)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, 10_000, kind)?;
        let region = memory.slice(3..9000)?;
        let mut expected = pattern(10_000, 0);
        memory.write(0, &expected)?;
        for finish in [true, false] {
            let mut random = Random::new(u64::from(finish));
            let mut writer = region.writer();
            for _ in 0..500 {
                let (offset, len) = random.range_within(region.len());
                let bytes = random.bytes(len.min(97));
                writer.write(offset, &bytes)?;
                expected[3 + offset..][..bytes.len()].copy_from_slice(&bytes);
            }
            writer.write(13, &[1.5_f32, 2.5])?;
            expected[16..24].copy_from_slice(bytemuck::cast_slice(&[1.5_f32, 2.5]));
            for (offset, len) in [(8997, 1), (8996, 2), (0, 8998), (usize::MAX, 1), (usize::MAX, 0)] {
                let error = refused(writer.write(offset, &vec![1_u8; len]));
                assert!(matches!(error, Error::OutOfRange { size: 8997, .. }), "{error}");
            }
            assert!(format!("{writer:?}").contains("len: 8997"), "{writer:?}");
            if finish {
                writer.finish();
            } else {
                drop(writer);
            }
            memory.flush(..)?;
            assert!(device_read(memory.device_ptr(), 10_000) == expected, "{kind}");
        }
    }
    Ok(())
}
