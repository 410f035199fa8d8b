//! Lowers operands: names, numbers and addresses become slots.

use super::scope::Entity;
use super::symbols::Symbol;
use super::{Lower, Lowered, Reason, append};
use crate::arithmetic::lanewise::{WideBinary, lanewise};
use crate::arithmetic::mask;
use crate::ast::Operand;
use crate::lexer::Number;
use crate::op::{Constant, LOCAL_BASE, Op, Slot, Special};
use crate::types::Type;
use crate::window::{RESERVED_SHARED, Window};

impl<'a> Lower<'_, 'a> {
    /// A slot that starts as zero.
    pub(super) fn temporary(&mut self) -> Slot {
        append(&mut self.function.constants, Constant::Zero)
    }

    pub(super) fn constant(&mut self, constant: Constant) -> Slot {
        if let Some(&slot) = self.constants.get(&constant) {
            return slot;
        }
        let slot = append(&mut self.function.constants, constant);
        self.constants.insert(constant, slot);
        slot
    }

    pub(super) fn value(&mut self, value: u64) -> Slot {
        self.constant(Constant::Value(value))
    }

    /// The value of a function in a slot of its own.
    pub(super) fn applied(&mut self, f: WideBinary, a: Slot, b: Slot) -> Slot {
        let d = self.temporary();
        self.emit(Op::Binary { f, d, a, b });
        d
    }

    /// A value in a slot of its own.
    pub(super) fn copied(&mut self, a: Slot) -> Slot {
        let d = self.temporary();
        self.emit(Op::Move { d, a });
        d
    }

    pub(super) fn find_register(&mut self, name: &'a str) -> Option<(Slot, Type)> {
        if let Some(Entity::Register(slot, type_)) = self.scopes.find(name) {
            return Some((*slot, *type_));
        }
        let (scope, type_) = self.scopes.find_in_range(name)?;
        let slot = self.temporary();
        self.scopes.assign(scope, name, slot, type_);
        Some((slot, type_))
    }

    pub(super) fn predicate(&mut self, name: &'a str) -> Lowered<Slot> {
        match self.find_register(name) {
            Some((slot, Type::Pred)) => Ok(slot),
            Some(_) => Err(format!("{name} is not a predicate").into()),
            None => Err(format!("{name} is not declared").into()),
        }
    }

    /// Whether an operand is a special register.
    pub(super) fn is_special(&mut self, operand: &Operand<'a>) -> bool {
        match *operand {
            Operand::Name(name) => special(name, None).is_some() && self.find_register(name).is_none(),
            Operand::Member(name, member) => special(name, Some(member)).is_some(),
            _ => false,
        }
    }

    /// A register as wide as the type.
    pub(super) fn destination(&mut self, operand: &Operand<'a>, type_: Type) -> Lowered<Slot> {
        let (slot, register) = self.written(operand, type_)?;
        fits_exactly(operand, register, type_)?;
        Ok(slot)
    }

    /// A register as wide as the type, or wider, and its width.
    pub(super) fn wide_destination(&mut self, operand: &Operand<'a>, type_: Type) -> Lowered<(Slot, u32)> {
        let (slot, register) = self.written(operand, type_)?;
        fits(operand, register, type_)?;
        Ok((slot, register.bits()))
    }

    fn written(&mut self, operand: &Operand<'a>, type_: Type) -> Lowered<(Slot, Type)> {
        match operand {
            Operand::Name("_") => Ok((self.temporary(), type_)),
            Operand::Name(name) => {
                self.find_register(name).ok_or_else(|| format!("{name} is not declared as a register").into())
            }
            _ => Err("the result needs a register".into()),
        }
    }

    /// A value of the type's width.
    pub(super) fn source(&mut self, operand: &Operand<'a>, type_: Type) -> Lowered<Slot> {
        if let Operand::Name(name) = operand
            && let Some((slot, register)) = self.find_register(name)
        {
            fits_exactly(operand, register, type_)?;
            return Ok(slot);
        }
        self.computed(operand, type_)
    }

    /// A value of the type's width or wider.
    pub(super) fn wide_source(&mut self, operand: &Operand<'a>, type_: Type) -> Lowered<Slot> {
        if let Operand::Name(name) = operand
            && let Some((slot, register)) = self.find_register(name)
        {
            fits(operand, register, type_)?;
            return Ok(slot);
        }
        self.computed(operand, type_)
    }

    /// A value other than a register: a number, a special register or an address.
    pub(super) fn computed(&mut self, operand: &Operand<'a>, type_: Type) -> Lowered<Slot> {
        match *operand {
            Operand::Number(number) => self.number(number, type_),
            Operand::Name("WARP_SZ") => Ok(self.value(32)),
            Operand::Name(name) | Operand::Member(name, _) if name.starts_with('%') => {
                let member = if let Operand::Member(_, member) = *operand { Some(member) } else { None };
                let what = special(name, member).ok_or_else(|| unknown(name))?;
                self.function.reserved_shared |= matches!(what, Special::ReservedShared(_));
                let d = self.temporary();
                self.emit(Op::Special { d, what });
                if type_.bits() < what.bits() { Ok(self.cut(d, type_)) } else { Ok(d) }
            }
            Operand::Name(name) => self.symbol_address(name, 0, type_),
            Operand::Sum(name, addend) => self.symbol_address(name, addend, type_),
            _ => Err(misfit(type_)),
        }
    }

    fn number(&mut self, number: Number, type_: Type) -> Lowered<Slot> {
        match number {
            Number::Integer(value) if type_ == Type::Pred => Ok(self.value(u64::from(value != 0))),
            Number::Integer(value) if !type_.is_float() => Ok(self.value(value & mask(type_.bits()))),
            Number::Integer(_) => Err(misfit(type_)),
            // Not as a number, which would make signalling NaNs quiet.
            Number::Single(bits) if type_ == Type::F32 => Ok(self.value(bits.into())),
            Number::Double(bits) if type_ == Type::F64 => Ok(self.value(bits)),
            Number::Single(bits) => self.float_value(f64::from(f32::from_bits(bits)), u64::from(bits), type_),
            Number::Double(bits) => self.float_value(f64::from_bits(bits), bits, type_),
        }
    }

    /// The low bits of a value.
    fn cut(&mut self, slot: Slot, type_: Type) -> Slot {
        let b = self.value(mask(type_.bits()));
        self.applied(lanewise!(|a, b| a & b), slot, b)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a decimal constant is rounded to its type")]
    fn float_value(&mut self, value: f64, bits: u64, type_: Type) -> Lowered<Slot> {
        match type_ {
            Type::F32 => Ok(self.value(u64::from((value as f32).to_bits()))),
            Type::F64 => Ok(self.value(value.to_bits())),
            Type::B32 | Type::B64 if mask(type_.bits()) >= bits => Ok(self.value(bits)),
            _ => Err("a floating-point constant does not fit the type".into()),
        }
    }

    fn find_symbol(&self, name: &'a str) -> Lowered<Entity<'a>> {
        if let Some(entity) = self.scopes.find(name) {
            return Ok(entity.clone());
        }
        match self.symbols.names.get(name) {
            Some(Symbol::Undefined) => Err(format!("{name} is declared, but not defined in this module").into()),
            Some(&symbol) => Ok(Entity::Module(symbol)),
            None => Err(format!("{name} is not declared").into()),
        }
    }

    /// The address of a variable or function in its own space; in 32 bits, its lower half.
    fn symbol_address(&mut self, name: &'a str, addend: u64, type_: Type) -> Lowered<Slot> {
        if type_.bits() < 32 || type_.is_float() {
            return Err(format!("{name} is an address, which does not fit the type").into());
        }
        let (base, offset, window) = self.symbol_place(name)?;
        let offset = offset.wrapping_add(addend);
        if let Constant::Value(value) = self.function.constants[base as usize] {
            return Ok(self.value(value.wrapping_add(offset) & mask(type_.bits())));
        }
        let address = if offset == 0 {
            base
        } else {
            let b = self.value(offset);
            self.applied(lanewise!(2, u64::wrapping_add), base, b)
        };
        // The other spaces are much smaller than 4 GiB: only a negative addend leads out of their 32 bits.
        let fits = window != Window::Global && offset <= mask(31);
        Ok(if fits || type_.bits() == 64 { address } else { self.cut(address, type_) })
    }

    /// A variable's base slot, the offset from it and its window.
    pub(super) fn symbol_place(&mut self, name: &'a str) -> Lowered<(Slot, u64, Window)> {
        Ok(match self.find_symbol(name)? {
            Entity::Local { offset, .. } => (LOCAL_BASE, offset, Window::Local),
            Entity::KernelParameter { offset } => (self.value(0), offset, Window::Param),
            Entity::Module(Symbol::Variable(index)) => (self.constant(Constant::Variable { index }), 0, Window::Global),
            Entity::Module(Symbol::Shared(index)) => {
                self.function.shared.push(index);
                (self.constant(Constant::Shared { index }), 0, Window::Shared)
            }
            Entity::Module(Symbol::DynamicShared) => {
                let d = self.temporary();
                self.emit(Op::Special { d, what: Special::DynamicSharedBase });
                (d, 0, Window::Shared)
            }
            Entity::Module(Symbol::Function(index)) => (self.constant(Constant::Function { index }), 0, Window::Global),
            _ => return Err(format!("{name} has no address").into()),
        })
    }

    /// `[base+offset]` in the window that the instruction names.
    pub(super) fn address(&mut self, operand: &Operand<'a>, window: Window) -> Lowered<Address> {
        let Operand::Address(base, offset) = *operand else {
            return Err("an address in brackets was expected".into());
        };
        let Some(name) = base else {
            if window != Window::Local {
                return Err("only an address in .local can be a number".into());
            }
            return Ok(Address { base: self.value(0), offset, window, wraps: false });
        };
        if let Some((slot, type_)) = self.find_register(name) {
            if type_.bits() < 32 || type_.is_float() {
                return Err(format!("{name} cannot hold an address").into());
            }
            return Ok(Address { base: slot, offset, window, wraps: type_.bits() == 32 });
        }
        let (slot, start, actual) = self.variable_in(name, window)?;
        Ok(Address { base: slot, offset: start.wrapping_add(offset), window: actual, wraps: false })
    }

    /// A variable's base slot, the offset from it and its window, which must be the one that the instruction names.
    pub(super) fn variable_in(&mut self, name: &'a str, window: Window) -> Lowered<(Slot, u64, Window)> {
        let place = self.symbol_place(name)?;
        let parameter_of_function = window == Window::Param && place.2 == Window::Local;
        if window != place.2 && window != Window::Generic && !parameter_of_function {
            return Err(format!("{name} is not in this state space").into());
        }
        Ok(place)
    }

    /// A predicate that may be negated.
    pub(super) fn negatable(&mut self, operand: &Operand<'a>) -> Lowered<(Slot, bool)> {
        match operand {
            Operand::Not(name) => Ok((self.predicate(name)?, true)),
            _ => Ok((self.source(operand, Type::Pred)?, false)),
        }
    }
}

/// A lowered address: a base register and an offset.
#[derive(Clone, Copy)]
pub(super) struct Address {
    pub(super) base: Slot,
    pub(super) offset: u64,
    pub(super) window: Window,
    /// Whether the base has 32 bits, so that their sum in shared memory is modulo 2^32.
    pub(super) wraps: bool,
}

/// An integer operand that must be constant.
pub(super) fn number(operand: &Operand<'_>) -> Lowered<u64> {
    match operand {
        Operand::Number(Number::Integer(value)) => Ok(*value),
        _ => Err("a constant was expected".into()),
    }
}

fn fits_exactly(operand: &Operand<'_>, register: Type, type_: Type) -> Lowered<()> {
    if register.bits() == type_.bits() && (register == Type::Pred) == (type_ == Type::Pred) {
        return Ok(());
    }
    Err(mismatch(operand, register, type_))
}

fn fits(operand: &Operand<'_>, register: Type, type_: Type) -> Lowered<()> {
    if register.bits() >= type_.bits() && (register == Type::Pred) == (type_ == Type::Pred) {
        return Ok(());
    }
    Err(mismatch(operand, register, type_))
}

fn misfit(type_: Type) -> Reason {
    format!("an operand does not fit the type {type_:?}").into()
}

fn mismatch(operand: &Operand<'_>, register: Type, type_: Type) -> Reason {
    let name = if let Operand::Name(name) = operand { name } else { "the operand" };
    format!("{name} has the type {register:?}, which does not fit {type_:?}").into()
}

/// Whether a name is the prefix followed by a number below `count`.
fn is_numbered(name: &str, prefix: &str, count: u8) -> bool {
    name.strip_prefix(prefix).and_then(|number| number.parse::<u8>().ok()).is_some_and(|number| number < count)
}

/// A special register that is not supported concerns only the functions that read it; any other name is an error of the text.
fn unknown(name: &str) -> Reason {
    match name {
        "%aggr_smem_size" => Reason::unsupported(format!("{name} is not supported")),
        _ => format!("{name} is not declared").into(),
    }
}

/// A special register from its name.
fn special(name: &str, member: Option<&str>) -> Option<Special> {
    if let Some(member) = member {
        let axis = match member {
            "x" => 0,
            "y" => 1,
            "z" => 2,
            "w" => 3,
            _ => return None,
        };
        return Some(match name {
            "%tid" => Special::Thread(axis),
            "%ntid" => Special::BlockSize(axis),
            "%ctaid" => Special::Block(axis),
            "%nctaid" => Special::GridSize(axis),
            _ => return None,
        });
    }
    Some(match name {
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::WarpCount,
        // One multiprocessor, one grid.
        "%smid" | "%gridid" => Special::Zero,
        "%nsmid" => Special::One,
        "%clock" | "%clock64" => Special::Clock,
        "%clock_hi" => Special::ClockHigh,
        "%globaltimer" | "%globaltimer_lo" => Special::GlobalTimer,
        "%globaltimer_hi" => Special::GlobalTimerHigh,
        "%lanemask_eq" => Special::LanesEqual,
        "%lanemask_lt" => Special::LanesLess,
        "%lanemask_le" => Special::LanesLessEqual,
        "%lanemask_gt" => Special::LanesGreater,
        "%lanemask_ge" => Special::LanesGreaterEqual,
        "%envreg1" => Special::GridWorkspaceHigh,
        "%envreg2" => Special::GridWorkspace,
        // Read-only registers that the driver sets.
        _ if is_numbered(name, "%envreg", 32) => Special::Zero,
        "%dynamic_smem_size" => Special::DynamicShared,
        "%total_smem_size" => Special::TotalShared,
        // Which offsets the two numbered ones are is not documented. Cooperative groups keep 288 bytes at the second one.
        "%reserved_smem_offset_begin" | "%reserved_smem_offset_0" => Special::ReservedShared(0),
        "%reserved_smem_offset_1" => Special::ReservedShared(RESERVED_SHARED / 2),
        "%reserved_smem_offset_end" => Special::ReservedShared(RESERVED_SHARED),
        "%reserved_smem_offset_cap" => Special::ReservedSharedSize,
        // Zero in what is not launched by a graph on the device.
        "%current_graph_exec" => Special::Zero,
        // Counters of events that nothing has chosen.
        _ if is_numbered(name, "%pm", 8) => Special::Zero,
        _ => return None,
    })
}
