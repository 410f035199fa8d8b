//! Lowers loads and stores.

use super::arithmetic::type_of;
use super::cache::drop_cache_hints;
use super::operand::{Address, number};
use super::{Instruction, Lower, Lowered, Modifiers, UNSUPPORTED, operands};
use crate::arithmetic::lanewise::lanewise;
use crate::ast::Operand;
use crate::memory::Scope;
use crate::op::{Access, Op};
use crate::types::Type;
use crate::window::Window;

/// Cache hints, which are ignored: there is no cache.
const CACHES: [&str; 9] = ["ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified"];

/// The scope that an instruction names, if it names one.
pub(super) fn scope(m: &mut Modifiers<'_>) -> Option<Scope> {
    let scope = m.take_any(&["cta", "gpu", "sys"])?;
    Some(if scope == "sys" { Scope::System } else { Scope::Device })
}

/// The modifiers of a load or a store.
struct Modified {
    window: Window,
    count: usize,
    type_: Type,
    /// The scope of the fence that the modifiers demand.
    fence: Option<Scope>,
    /// Whether they demand no order at all.
    weak: bool,
}

impl<'a> Lower<'_, 'a> {
    pub(super) fn memory(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        match i.opcode {
            "ld" | "ldu" => self.load(i, m),
            "st" => self.store(i, m),
            _ => self.copy(i, m),
        }
    }

    /// Reads the modifiers, of which `order` demands a fence.
    fn access(&mut self, m: &mut Modifiers<'a>, order: &str) -> Lowered<Modified> {
        let fence = m.take(order);
        let order = m.take_any(&["volatile", "weak", "relaxed", "mmio"]);
        if fence && order.is_some() && order != Some("mmio") {
            return Err(UNSUPPORTED);
        }
        let scope = scope(m).unwrap_or(Scope::Device);
        let weak = !fence && matches!(order, None | Some("weak"));
        let window = self.take_window(m).unwrap_or(Window::Generic);
        while m.take_any(&CACHES).is_some() {}
        drop_cache_hints(m);
        let count = match m.take_any(&["v2", "v4"]) {
            Some("v2") => 2,
            Some(_) => 4,
            None => 1,
        };
        let type_ = type_of(m)?;
        if type_ == Type::Pred || type_.bytes() as usize * count > 16 {
            return Err(UNSUPPORTED);
        }
        Ok(Modified { window, count, type_, fence: fence.then_some(scope), weak })
    }

    fn load(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let Modified { window, count, type_, fence, weak } = self.access(m, "acquire")?;
        let [d, address] = operands(i)?;
        let address = self.address(address, window)?;
        let targets = parts(d, count)?;
        // The first element may overwrite the base register.
        let base = if count > 1 { self.copied(address.base) } else { address.base };
        for (target, index) in targets.iter().zip(0u8..) {
            let (d, width) = self.wide_destination(target, type_)?;
            let mut access = access_of(address, type_, index, count);
            access.weak = weak;
            if type_.is_signed() {
                access.extend = u8::try_from(width).unwrap_or(64);
            }
            let offset = address.offset.wrapping_add(u64::from(index) * u64::from(type_.bytes()));
            self.emit(Op::Load { d, base, offset, access });
        }
        if let Some(scope) = fence {
            self.emit(Op::Fence { scope });
        }
        self.end_volatile(i);
        Ok(())
    }

    fn store(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let Modified { window, count, type_, fence, .. } = self.access(m, "release")?;
        if i.modifiers.contains(&"const") {
            return Err("constant memory is not written".into());
        }
        let [address, a] = operands(i)?;
        let address = self.address(address, window)?;
        if address.window == Window::Param {
            return Err("a kernel's parameters are not written".into());
        }
        if let Some(scope) = fence {
            self.emit(Op::Fence { scope });
        }
        for (value, index) in parts(a, count)?.iter().zip(0u8..) {
            let a = self.wide_source(value, type_)?;
            let access = access_of(address, type_, index, count);
            let offset = address.offset.wrapping_add(u64::from(index) * u64::from(type_.bytes()));
            self.emit(Op::Store { a, base: address.base, offset, access });
        }
        self.end_volatile(i);
        Ok(())
    }

    /// Code older than `bar.warp.sync` relies on the lanes of a warp making their volatile accesses in lockstep: each
    /// lane makes one before any lane makes the next.
    fn end_volatile(&mut self, i: &Instruction<'a>) {
        if i.modifiers.contains(&"volatile") {
            self.emit(Op::Yield);
        }
    }

    /// `cp.async`: executed at once, so that the waits are no-ops.
    fn copy(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        if !m.take("async") {
            return Err(UNSUPPORTED);
        }
        if m.take("mbarrier") {
            return self.copies_arrive(i, m);
        }
        let cache = m.take_any(&["commit_group", "wait_group", "wait_all", "ca", "cg"]);
        match cache {
            Some("commit_group" | "wait_all") => return operands::<0>(i).map(|_| ()),
            Some("wait_group") => {
                let [count] = operands(i)?;
                return number(count).map(|_| ());
            }
            Some(_) => {}
            None => return Err(UNSUPPORTED),
        }
        let to_shared = m.take_any(&["shared", "shared::cta"]).is_some();
        drop_cache_hints(m);
        if !to_shared || !m.take("global") {
            return Err(UNSUPPORTED);
        }
        let ([target, source, size], limit) = match i.operands.as_slice() {
            [target, source, size] => ([target, source, size], None),
            [target, source, size, limit] => ([target, source, size], Some(limit)),
            _ => return Err("3 or 4 operands were expected".into()),
        };
        let size = match (number(size)?, cache) {
            (16, _) => 16,
            (size @ (4 | 8), Some("ca")) => size,
            (4 | 8, _) => return Err("cp.async.cg copies 16 bytes".into()),
            _ => return Err("cp.async copies 4, 8 or 16 bytes".into()),
        };
        if let Some(limit) = limit {
            return self.partial_copy([target, source], size, limit);
        }
        let to = self.address(target, Window::Shared)?;
        let from = self.address(source, Window::Global)?;
        let step = size.min(8);
        for at in (0..size).step_by(8) {
            let align = if at == 0 { size } else { step };
            let narrow = |value: u64| u8::try_from(value).unwrap_or(8);
            let access = Access {
                window: Window::Global,
                bytes: narrow(step),
                align: narrow(align),
                extend: 0,
                weak: false,
                wraps: false,
            };
            let d = self.temporary();
            self.emit(Op::Load { d, base: from.base, offset: from.offset.wrapping_add(at), access });
            let access = Access { window: Window::Shared, wraps: to.wraps, ..access };
            self.emit(Op::Store { a: d, base: to.base, offset: to.offset.wrapping_add(at), access });
        }
        Ok(())
    }
}

impl<'a> Lower<'_, 'a> {
    /// A copy of the first bytes only, or of none if the operand is a predicate that is true; zeros follow.
    fn partial_copy(&mut self, [to, from]: [&Operand<'a>; 2], size: u64, limit: &Operand<'a>) -> Lowered<()> {
        let is_predicate =
            matches!(limit, Operand::Name(name) if matches!(self.find_register(name), Some((_, Type::Pred))));
        let limit = if is_predicate {
            let p = self.source(limit, Type::Pred)?;
            let whole = self.value(size);
            self.applied(lanewise!(|p, whole| if p == 0 { whole } else { 0 }), p, whole)
        } else {
            self.source(limit, Type::U32)?
        };
        let (to, from) = (self.address(to, Window::Shared)?, self.address(from, Window::Global)?);
        let d = self.temporary();
        // The whole size aligns both addresses, although only a part may be read.
        let align = u8::try_from(size).unwrap_or(16);
        let access = Access { window: Window::Shared, bytes: 1, align, extend: 0, weak: false, wraps: to.wraps };
        let zero = self.value(0);
        self.emit(Op::Store { a: zero, base: to.base, offset: to.offset, access });
        for at in 0..size {
            let after = self.new_label();
            let index = self.value(at);
            let inside = self.applied(lanewise!(|at, limit| u64::from(at < limit)), index, limit);
            self.emit(Op::Move { d, a: zero });
            self.emit(Op::BranchIf { p: inside, negated: true, target: after });
            let align = if at == 0 { align } else { 1 };
            let access = Access { window: Window::Global, bytes: 1, align, extend: 0, weak: false, wraps: false };
            self.emit(Op::Load { d, base: from.base, offset: from.offset.wrapping_add(at), access });
            self.place(after);
            let access = Access { window: Window::Shared, bytes: 1, align: 1, extend: 0, weak: false, wraps: to.wraps };
            self.emit(Op::Store { a: d, base: to.base, offset: to.offset.wrapping_add(at), access });
        }
        Ok(())
    }
}

/// The elements of a vector, or the one value.
fn parts<'o, 'a>(operand: &'o Operand<'a>, count: usize) -> Lowered<&'o [Operand<'a>]> {
    match operand {
        Operand::Vector(parts) if parts.len() == count => Ok(parts),
        Operand::Vector(_) => Err(format!("a vector of {count} was expected").into()),
        _ if count == 1 => Ok(std::slice::from_ref(operand)),
        _ => Err(format!("a vector of {count} was expected").into()),
    }
}

/// The first element carries the alignment of the whole vector.
pub(super) fn access_of(address: Address, type_: Type, index: u8, count: usize) -> Access {
    let bytes = u8::try_from(type_.bytes()).unwrap_or(8);
    let whole = bytes * u8::try_from(count).unwrap_or(1);
    let Address { window, wraps, .. } = address;
    Access { window, bytes, align: if index == 0 { whole } else { bytes }, extend: 0, weak: false, wraps }
}
