//! Lowers branches, returns and exits.

use super::scope::Entity;
use super::{Instruction, Lower, Lowered, Modifiers, Reason, UNSUPPORTED, append, operands};
use crate::ast::Operand;
use crate::op::Op;
use crate::types::Type;

impl<'a> Lower<'_, 'a> {
    pub(super) fn control(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        if matches!(i.opcode, "bra" | "brx" | "ret") {
            m.take("uni");
        }
        match i.opcode {
            "bra" => {
                let target = self.branch_target(i)?;
                self.emit(Op::Branch { target });
                return Ok(());
            }
            "brx" => return self.branch_table(i, m),
            "ret" => self.emit(Op::Return),
            "exit" => self.emit(Op::Exit),
            _ => self.emit(Op::Trap),
        }
        operands::<0>(i).map(|_| ())
    }

    /// The label of a `bra`. Checks its modifiers, too, since a guarded branch is lowered elsewhere.
    pub(super) fn branch_target(&mut self, i: &Instruction<'a>) -> Lowered<u32> {
        if let Some(left) = i.modifiers.iter().find(|&&left| left != "uni") {
            return Err(Reason::unsupported_modifier(left));
        }
        match operands(i)? {
            [Operand::Name(name)] => self.label(name),
            _ => Err("a label was expected".into()),
        }
    }

    fn label(&self, name: &'a str) -> Lowered<u32> {
        match self.scopes.find(name) {
            Some(Entity::Label(label)) => Ok(*label),
            _ => Err(format!("{name} is not a label").into()),
        }
    }

    fn branch_table(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        if !m.take("idx") {
            return Err(UNSUPPORTED);
        }
        let [a, Operand::Name(list)] = operands(i)? else {
            return Err("a list of targets was expected".into());
        };
        let Some(Entity::BranchTargets(targets)) = self.scopes.find(list) else {
            return Err(format!("{list} is not a list of targets").into());
        };
        let labels = targets.iter().map(|name| self.label(name)).collect::<Lowered<Vec<u32>>>()?;
        let a = self.source(a, Type::U32)?;
        let table = append(&mut self.function.tables, labels);
        self.emit(Op::BranchTable { a, table });
        Ok(())
    }
}
