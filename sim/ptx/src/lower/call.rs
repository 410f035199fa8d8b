//! Lowers calls: of functions, through pointers, and of the functions of the device runtime.

use super::scope::Entity;
use super::symbols::Symbol;
use super::{Instruction, Lower, Lowered, Modifiers, append};
use crate::ast::Operand;
use crate::op::{Call, Formal, Op, Place, Shape, Target, Transfer};
use crate::types::Type;

impl<'a> Lower<'_, 'a> {
    pub(super) fn call(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        m.take("uni");
        let mut left = i.operands.as_slice();
        let results = take_list(&mut left);
        let [Operand::Name(name), rest @ ..] = left else {
            return Err("the name of a function was expected".into());
        };
        left = rest;
        let arguments = take_list(&mut left);
        let call = if let Some((slot, type_)) = self.find_register(name) {
            let [Operand::Name(prototype)] = left else {
                return Err("a call through a pointer needs a prototype".into());
            };
            if type_.bits() != 64 {
                return Err(format!("{name} cannot hold a pointer").into());
            }
            let shape = self.prototype(prototype)?;
            self.function.calls_pointers = true;
            self.call_of(Target::Pointer(slot, shape.clone()), &shape, results, arguments)?
        } else {
            match self.symbols.names.get(name) {
                Some(&Symbol::Function(index)) if self.symbols.defined[index] => {
                    self.function.callees.push(index);
                    let shape = self.symbols.shapes[index].clone();
                    // What the caller takes for the result keeps its value.
                    let results = if self.symbols.without_result.contains(&index) { &[] } else { results };
                    self.call_of(Target::Function(index), &shape, results, arguments)?
                }
                Some(Symbol::Function(_) | Symbol::Undefined) => self.call_of_runtime(name, results, arguments)?,
                _ => return Err(format!("{name} is not a function").into()),
            }
        };
        let call = append(&mut self.function.calls, call);
        self.emit(Op::Call { call });
        Ok(())
    }

    fn prototype(&self, name: &'a str) -> Lowered<Shape> {
        match self.scopes.find(name) {
            Some(Entity::Prototype(shape)) => Ok(shape.clone()),
            Some(Entity::CallTargets(targets)) => match self.symbols.names.get(targets[0]) {
                Some(&Symbol::Function(index)) => Ok(self.symbols.shapes[index].clone()),
                _ => Err(format!("{} is not a function", targets[0]).into()),
            },
            _ => Err(format!("{name} is not a prototype").into()),
        }
    }

    fn call_of(
        &mut self,
        target: Target,
        shape: &Shape,
        results: &[Operand<'a>],
        arguments: &[Operand<'a>],
    ) -> Lowered<Call> {
        if results.len() != shape.results.len() || arguments.len() != shape.parameters.len() {
            return Err("the number of arguments or results is wrong".into());
        }
        let mut call = Call { target, arguments: Vec::new(), results: Vec::new() };
        for (argument, formal) in arguments.iter().zip(&shape.parameters) {
            let from = self.actual(argument, *formal)?;
            call.arguments.push(Transfer { from, to: formal.place, bytes: formal.bytes });
        }
        for (result, formal) in results.iter().zip(&shape.results) {
            let to = self.actual_result(result, *formal)?;
            call.results.push(Transfer { from: formal.place, to, bytes: formal.bytes });
        }
        Ok(call)
    }

    /// The caller's location for a result.
    fn actual_result(&mut self, operand: &Operand<'a>, formal: Formal) -> Lowered<Place> {
        match operand {
            Operand::Name(name)
                if matches!(self.scopes.find(name), Some(Entity::Local { .. }))
                    || self.find_register(name).is_some() =>
            {
                self.actual(operand, formal)
            }
            _ => Err("a result needs a register or a .param variable".into()),
        }
    }

    /// The caller's location of an argument.
    fn actual(&mut self, operand: &Operand<'a>, formal: Formal) -> Lowered<Place> {
        if let Operand::Name(name) = operand
            && let Some(Entity::Local { offset, size }) = self.scopes.find(name)
        {
            if *size < formal.bytes {
                return Err(format!("{name} is smaller than the parameter").into());
            }
            return Ok(Place::Local(*offset));
        }
        if let Operand::Name(name) = operand
            && let Some(Entity::KernelParameter { .. }) = self.scopes.find(name)
        {
            return Err(format!("{name} is a kernel's parameter, which has to be loaded first").into());
        }
        let type_ = match formal.bytes {
            1 => Type::B8,
            2 => Type::B16,
            4 => Type::B32,
            8 => Type::B64,
            _ => return Err("the argument needs a .param variable".into()),
        };
        Ok(Place::Slot(self.wide_source(operand, type_)?))
    }

    /// The functions that a module may call without defining them: `vprintf`, `__assertfail`, `malloc` and `free`.
    fn call_of_runtime(&mut self, name: &str, results: &[Operand<'a>], arguments: &[Operand<'a>]) -> Lowered<Call> {
        let bytes = |bytes| Formal { place: Place::Local(0), bytes };
        let target = match (name, arguments) {
            ("vprintf", [format, buffer]) => {
                let arguments = [self.actual(format, bytes(8))?, self.actual(buffer, bytes(8))?];
                let result = match results {
                    [] => None,
                    [result, ..] => Some(self.actual_result(result, bytes(4))?),
                };
                Target::Print { result, arguments }
            }
            ("malloc", [size]) => {
                let bytes = self.actual(size, bytes(8))?;
                let result = match results {
                    [] => None,
                    [result, ..] => Some(self.actual_result(result, Formal { place: Place::Local(0), bytes: 8 })?),
                };
                Target::Allocate { result, bytes }
            }
            ("free", [address]) => Target::Release { address: self.actual(address, bytes(8))? },
            ("__assertfail", [message, file, line, function, _]) => Target::Assert {
                arguments: [
                    self.actual(message, bytes(8))?,
                    self.actual(file, bytes(8))?,
                    self.actual(line, bytes(4))?,
                    self.actual(function, bytes(8))?,
                ],
            },
            _ => return Err(format!("{name} is declared, but not defined in this module").into()),
        };
        Ok(Call { target, arguments: Vec::new(), results: Vec::new() })
    }
}

/// Parses the next list in parentheses. A missing list is empty.
fn take_list<'o, 'a>(operands: &mut &'o [Operand<'a>]) -> &'o [Operand<'a>] {
    match *operands {
        [Operand::List(list), rest @ ..] => {
            *operands = rest;
            list
        }
        _ => &[],
    }
}
