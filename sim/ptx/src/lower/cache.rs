//! Lowers hints to the caches, which do nothing here but to check their operands.

use super::{Instruction, Lower, Lowered, Modifiers, UNSUPPORTED, operands};
use crate::op::Op;
use crate::types::Type;
use crate::window::Window;

/// The modifier of an access whose last operand is a cache policy.
const POLICY: &str = "L2::cache_hint";
const PRIORITIES: [&str; 4] = ["L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged"];

impl<'a> Lower<'_, 'a> {
    /// An access without its cache policy, if it has one.
    pub(super) fn without_policy(&mut self, i: &Instruction<'a>) -> Lowered<Option<Instruction<'a>>> {
        if !i.modifiers.contains(&POLICY) || !matches!(i.opcode, "ld" | "st" | "atom" | "red" | "cp") {
            return Ok(None);
        }
        let Some((policy, others)) = i.operands.split_last() else { return Err("a cache policy was expected".into()) };
        self.source(policy, Type::B64)?;
        let modifiers = i.modifiers.iter().copied().filter(|&modifier| modifier != POLICY).collect();
        Ok(Some(Instruction { modifiers, operands: others.to_vec(), ..i.clone() }))
    }

    pub(super) fn cache(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        match i.opcode {
            "createpolicy" => self.create_policy(i, m),
            "prefetch" | "prefetchu" => {
                self.take_window(m);
                drop_cache_hints(m);
                m.take_any(&["L1", "L2"]);
                let [address] = operands(i)?;
                self.address(address, Window::Generic).map(|_| ())
            }
            // The bytes that are discarded may keep their values.
            _ => {
                let hint = if i.opcode == "discard" { "L2" } else { "L2::evict_normal" };
                if !m.take(hint) {
                    return Err(UNSUPPORTED);
                }
                let window = self.take_window(m).unwrap_or(Window::Generic);
                let [address, size] = operands(i)?;
                self.address(address, window)?;
                if super::operand::number(size)? == 128 { Ok(()) } else { Err("the size must be 128".into()) }
            }
        }
    }

    /// Policies are zero.
    fn create_policy(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let how = m.take_any(&["fractional", "range", "cvt"]).ok_or(UNSUPPORTED)?;
        if how == "cvt" {
            m.take("L2");
        } else {
            m.take_any(&PRIORITIES).ok_or(UNSUPPORTED)?;
            m.take_any(&PRIORITIES);
        }
        if !m.take("b64") {
            return Err(UNSUPPORTED);
        }
        let d = match (how, i.operands.as_slice()) {
            ("fractional", [d]) => d,
            ("fractional", [d, fraction]) => {
                self.source(fraction, Type::F32)?;
                d
            }
            ("range", [d, address, primary, total]) => {
                let window = self.take_window(m).unwrap_or(Window::Generic);
                self.address(address, window)?;
                self.source(primary, Type::U32)?;
                self.source(total, Type::U32)?;
                d
            }
            ("cvt", [d, property]) => {
                self.source(property, Type::B64)?;
                d
            }
            _ => return Err("the number of operands is wrong".into()),
        };
        let d = self.destination(d, Type::B64)?;
        let a = self.value(0);
        self.emit(Op::Move { d, a });
        Ok(())
    }
}

/// Hints without operands, such as `.L1::no_allocate`.
pub(super) fn drop_cache_hints(m: &mut Modifiers<'_>) {
    m.drop_prefixed("L1::");
    m.drop_prefixed("L2::");
}
