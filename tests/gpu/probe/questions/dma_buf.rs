//! dma-bufs of device memory, which the CPU maps.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};

use vkgdr::MemoryKind;

use super::speed::meaning;
use super::{best_of, rate, yes_no};
use crate::Probe;
use crate::cuda::{self, Answer, Buffer, Imported};
use crate::host::{MappedFile, Words, store_fence};

const LEN: usize = 2 << 20;
/// Bytes of the pages of which each has a number as its bytes.
const PAGE: usize = 4096;
/// Flag of `cuMemGetHandleForAddressRange` (`CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE`).
const PCIE: u64 = 1;

/// Memory and flags of the export.
pub(super) const EXPORTS: &[&str] =
    &["cuMemAlloc, flags 0", "cuMemAlloc, flags PCIE", "imported, flags 0", "imported, flags PCIE"];

/// Each step prints its own line, since later ones may end the process.
pub(super) fn mapping(probe: &Probe, part: &str) -> Answer<String> {
    // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED and _DMA_BUF_MMAP_SUPPORTED.
    for attribute in [124, 152] {
        println!("device attribute {attribute}: {:?}", probe.cuda.attribute(attribute));
    }
    println!("cuDriverGetVersion: {:?}", probe.cuda.version());
    let flags = if part.ends_with("PCIE") { PCIE } else { 0 };
    let (vulkan, allocation, imported);
    let buffer = if part.starts_with("imported") {
        vulkan = probe.vulkan()?;
        allocation = vulkan.allocate(vulkan.type_of(MemoryKind::Mapped)?, LEN as u64)?;
        imported = Imported::new(allocation.export()?, LEN as u64, false)?;
        imported.map(0, LEN as u64)?
    } else {
        Buffer::new(LEN)?
    };
    println!("memory at {:#x}", buffer.0);
    number_pages(probe, &buffer)?;
    let exported = cuda::dma_buf(buffer.0, LEN, flags);
    println!("exported: {}", exported.as_ref().map_or_else(Clone::clone, size_of_file));
    for (offset, len) in [(0, PAGE), (PAGE, PAGE), (PAGE, 64 << 10), (64 << 10, 64 << 10)] {
        let part = cuda::dma_buf(buffer.0 + offset as u64, len, flags);
        println!("exported, {len} bytes at +{offset}: {}", part.map_or_else(|refusal| refusal, |fd| size_of_file(&fd)));
    }
    let fd = match exported {
        Ok(fd) => fd,
        Err(refusal) => return Ok(format!("not exported ({refusal})")),
    };
    let mapped = match MappedFile::new(fd.as_fd(), LEN) {
        Ok(mapped) => mapped,
        Err(refusal) => return Ok(format!("exported, not mapped ({refusal})")),
    };
    println!("mapped at {:?}", mapped.words().as_ptr());
    let answer = shared(probe, buffer, fd, &mapped)?;
    if part.starts_with("cuMemAlloc") {
        parts(probe, flags)?;
    }
    Ok(format!("{}{answer}", meaning(probe)))
}

/// Fills each of the first pages with its number, from 1 on.
fn number_pages(probe: &Probe, buffer: &Buffer) -> Answer<()> {
    for page in 0..32_u8 {
        cuda::memset(buffer.0 + u64::from(page) * PAGE as u64, page + 1, PAGE)?;
    }
    probe.cuda.synchronize()
}

fn size_of_file(fd: &OwnedFd) -> String {
    let size = fd.try_clone().and_then(|fd| File::from(fd).seek(SeekFrom::End(0)));
    size.map_or_else(|error| format!("yes, lseek says {error}"), |size| format!("yes, lseek says {size} bytes"))
}

fn shared(probe: &Probe, buffer: Buffer, fd: OwnedFd, mapped: &MappedFile) -> Answer<String> {
    const WORD: u32 = 0x600d_f00d;
    let words = mapped.words();
    let first_words = [0, 1, 16].map(|page| words.get(page * PAGE / 4));
    println!("the CPU sees at +0, +4 KiB and +64 KiB: {first_words:x?}");
    let seen_by_cpu = yes(first_words == [0x0101_0101, 0x0202_0202, 0x1111_1111]);

    let last = LEN / 4 - 1;
    words.set(last, WORD);
    store_fence();
    let mut seen = [0_u32];
    cuda::copy_to_host(&mut seen, buffer.0 + (last * 4) as u64)?;
    println!("the device sees {:#x} where the CPU wrote {WORD:#x}", seen[0]);
    let seen_by_device = yes(seen[0] == WORD);

    let (write, read) = times(words)?;
    println!("1 MiB by the CPU: write {write}, read {read}");

    words.set(last, WORD);
    drop(fd);
    let closed = words.get(last);
    println!("after the descriptor was closed the CPU sees {closed:#x}");
    let freed = buffer.free();
    println!("cuMemFree: {}", yes_no(&freed));
    let after_free = words.get(last);
    println!("after it the CPU sees {after_free:#x}");
    probe.cuda.synchronize()?;
    Ok(format!(
        "the CPU sees the device's bytes: {seen_by_cpu}, the device the CPU's: {seen_by_device}; 1 MiB write {write}, read \
         {read}; the same bytes after close: {}, after cuMemFree: {}",
        yes(closed == WORD),
        yes(after_free == WORD)
    ))
}

/// Which bytes mappings of parts of memory begin with.
fn parts(probe: &Probe, flags: u64) -> Answer<()> {
    let buffer = Buffer::new(LEN)?;
    number_pages(probe, &buffer)?;
    for (offset, len) in [(0, PAGE), (PAGE, PAGE), (PAGE, 64 << 10)] {
        let first = cuda::dma_buf(buffer.0 + offset as u64, len, flags)
            .and_then(|fd| MappedFile::new(fd.as_fd(), len).map(|mapped| mapped.words().get(0)));
        let answer = match first {
            Ok(word) => format!("begins with a byte of page {}; asked for page {}", word & 0xff, offset / PAGE + 1),
            Err(refusal) => format!("is refused: {refusal}"),
        };
        println!("a mapping of {len} bytes at +{offset} {answer}");
    }
    Ok(())
}

fn times(words: Words<'_>) -> Answer<(String, String)> {
    const LEN: usize = 1 << 20;
    let mut buffer = vec![0x0a0a_0a0a_u32; LEN / 4];
    let write = best_of(5, || {
        words.write(&buffer);
        store_fence();
        Ok(())
    })?;
    let read = best_of(3, || {
        words.read(&mut buffer);
        Ok(())
    })?;
    Ok((rate(LEN, write), rate(LEN, read)))
}

fn yes(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "NO" }
}
