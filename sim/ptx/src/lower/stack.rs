//! Lowers the instructions that change the size of a frame's local memory.

use super::arithmetic::type_of;
use super::operand::number;
use super::{Instruction, Lower, Lowered, Modifiers, UNSUPPORTED, operands};
use crate::op::Op;
use crate::types::Type;

/// The alignment of `alloca` without one, and the largest (PTX ISA, "alloca").
const ALIGN: u64 = 8;
const LARGEST_ALIGN: u64 = 1 << 23;

impl<'a> Lower<'_, 'a> {
    pub(super) fn stack(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let type_ = type_of(m)?;
        if !matches!(type_, Type::U32 | Type::U64) {
            return Err(UNSUPPORTED);
        }
        match i.opcode {
            "alloca" => {
                let (d, size, align) = match i.operands.as_slice() {
                    [d, size] => (d, size, ALIGN),
                    [d, size, align] => (d, size, number(align)?),
                    _ => return Err("the number of operands is wrong".into()),
                };
                if !align.is_power_of_two() || align > LARGEST_ALIGN {
                    return Err("an alignment must be a power of two, 2^23 at most".into());
                }
                let bytes = self.source(size, type_)?;
                let d = self.destination(d, type_)?;
                let align = self.value(align.max(ALIGN));
                self.emit(Op::Extend { d, bytes, align });
            }
            "stacksave" => {
                let [d] = operands(i)?;
                let d = self.destination(d, type_)?;
                self.emit(Op::StackSave { d });
            }
            _ => {
                let [a] = operands(i)?;
                let a = self.source(a, type_)?;
                self.emit(Op::StackRestore { a });
            }
        }
        Ok(())
    }
}
