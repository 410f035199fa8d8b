//! Builds a checked module from a source: names, then functions, then the variables' initial values.

use crate::ast::{Declaration, Function, Initial, Linkage, Source};
use crate::error::{LoadError, Reason};
use crate::lexer::Number;
use crate::link::{first_unsupported, shared_layout};
use crate::lower::{self, Symbol, Symbols};
use crate::module::{FirstValue, KernelHead, Module, Parameter, Space, Value, Variable};
use crate::op;
use crate::parser::parse;
use crate::span::Span;
use crate::types::{self, Type};
use std::collections::{HashMap, HashSet};

/// The limit on all variables of a module together, whose initial bytes must fit in memory.
const MOST_VARIABLES: u64 = 1 << 30;
/// The limit on a kernel's shared variables together, on every GPU.
const MOST_STATIC_SHARED: u64 = 48 << 10;

impl Module {
    /// Reads and checks a module. A kernel with a statement that is not supported, in itself or in a function that it calls,
    /// cannot be launched ([`Kernel::unsupported`](crate::Kernel::unsupported)); the others can.
    ///
    /// # Errors
    ///
    /// The first syntax error; without one, the first statement whose meaning is wrong, except those that follow an
    /// unsupported statement in the same function. If all statements are valid and no kernel can be launched, the first
    /// unsupported statement. Never panics, whatever the text.
    pub fn load(text: &str) -> Result<Module, LoadError> {
        let loaded = Self::checked(text);
        #[cfg(feature = "dump")]
        dump(text, &loaded);
        loaded
    }

    fn checked(text: &str) -> Result<Module, LoadError> {
        let mut source = parse(text)?;
        choose_weak(&mut source);
        let mut module =
            Module { text: text.into(), version: source.version, target: source.target, ..Module::default() };
        let (version, target) = (source.version, source.target);
        let mut symbols = Symbols { version, target, dynamic_align: 16, ..Symbols::default() };
        let mut loader = Loader { text, symbols: &mut symbols };
        loader.variables(&source, &mut module)?;
        loader.functions(&source)?;
        loader.first_values(&source, &mut module)?;
        loader.bodies(&source, &mut module)?;
        module.shared = symbols.shared;
        module.dynamic_align = symbols.dynamic_align;
        check_shared(&source, &module)?;
        check_some_supported(&module)?;
        Ok(module)
    }
}

/// Writes a module into the folder PTX_DUMP, and behind it the error, or the first statement that is not supported.
#[cfg(feature = "dump")]
fn dump(text: &str, loaded: &Result<Module, LoadError>) {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};

    let Some(folder) = std::env::var_os("PTX_DUMP") else { return };
    let mut name = DefaultHasher::new();
    text.hash(&mut name);
    let file = std::path::Path::new(&folder).join(format!("{:016x}.ptx", name.finish()));
    let refused = match loaded {
        Ok(module) => module.functions.iter().find_map(|function| function.unsupported.as_ref()),
        Err(error) => Some(error),
    };
    let refused = refused.map_or_else(String::new, |error| error.to_string().replace('\n', " "));
    std::fs::write(file, format!("{text}\n// {refused}")).expect("PTX_DUMP is a folder");
}

/// Refuses a kernel whose variables are more shared memory than a block can have without asking, as ptxas does. More is for
/// dynamic shared memory only, which a launch asks for.
fn check_shared(source: &Source<'_>, module: &Module) -> Result<(), LoadError> {
    let (_, bytes) = shared_layout(module);
    let Some((kernel, bytes)) = module.kernels.iter().zip(bytes).find(|(_, bytes)| *bytes > MOST_STATIC_SHARED) else {
        return Ok(());
    };
    let mut functions = source.functions.iter().filter(|function| function.body.is_some());
    let span = functions.find(|function| function.name == kernel.name).map_or_else(Span::default, |it| it.span);
    let reason = format!("{} uses too much shared data ({bytes} bytes, {MOST_STATIC_SHARED} at most)", kernel.name);
    Err(Reason::from(reason).at(span, &module.text))
}

/// Refuses a module of which no kernel can be launched.
fn check_some_supported(module: &Module) -> Result<(), LoadError> {
    if module.kernels.iter().any(|kernel| first_unsupported(module, kernel.function).is_none()) {
        return Ok(());
    }
    module.functions.iter().find_map(|function| function.unsupported.clone()).map_or(Ok(()), Err)
}

/// A weak function or variable gives way to a definition that is not, and to a weak one before it.
fn choose_weak(source: &mut Source<'_>) {
    let strong = source.functions.iter().filter(|function| function.body.is_some() && !function.is_weak);
    let mut defined: HashSet<&str> = strong.map(|function| function.name).collect();
    for function in source.functions.iter_mut().filter(|function| function.is_weak && function.body.is_some()) {
        if !defined.insert(function.name) {
            function.body = None;
        }
    }
    let strong = |declaration: &&Declaration<'_>| matches!(declaration.linkage, Linkage::Here | Linkage::Common);
    let mut defined: HashSet<&str> = source.variables.iter().filter(strong).map(|variable| variable.name).collect();
    source.variables.retain(|variable| variable.linkage != Linkage::Weak || defined.insert(variable.name));
}

struct Loader<'s, 'a> {
    text: &'a str,
    symbols: &'s mut Symbols<'a>,
}

impl<'a> Loader<'_, 'a> {
    fn error(&self, span: Span, reason: impl Into<Reason>) -> LoadError {
        reason.into().at(span, self.text)
    }

    fn variables(&mut self, source: &Source<'a>, module: &mut Module) -> Result<(), LoadError> {
        let mut total = 0u64;
        let mut commons: HashMap<&str, usize> = HashMap::new();
        for declaration in &source.variables {
            let symbol = match declaration.space {
                types::Space::Shared => {
                    self.symbols.add_shared(declaration).map_err(|reason| self.error(declaration.span, reason))?
                }
                types::Space::Global | types::Space::Const if declaration.linkage == Linkage::Extern => {
                    Symbol::Undefined
                }
                types::Space::Global | types::Space::Const => {
                    total = total.saturating_add(declaration.size());
                    let new = variable(declaration);
                    let index = if declaration.linkage == Linkage::Common {
                        *commons.entry(declaration.name).or_insert(module.variables.len())
                    } else {
                        module.variables.len()
                    };
                    match module.variables.get_mut(index) {
                        Some(known) => {
                            (known.size, known.align) = (known.size.max(new.size), known.align.max(new.align))
                        }
                        None => module.variables.push(new),
                    }
                    Symbol::Variable(index)
                }
                _ => return Err(self.error(declaration.span, "such a variable stands inside a function")),
            };
            if total > MOST_VARIABLES {
                return Err(self.error(declaration.span, "the module's variables are larger than 1 GiB"));
            }
            if declaration.type_ == Type::Pred || declaration.range.is_some() {
                return Err(self.error(declaration.span, "a variable of this type is not supported"));
            }
            self.name(declaration.name, symbol, declaration.span)?;
        }
        Ok(())
    }

    /// A definition replaces a declaration.
    fn name(&mut self, name: &'a str, symbol: Symbol, span: Span) -> Result<(), LoadError> {
        match self.symbols.names.get(name) {
            Some(Symbol::Undefined) | None => {
                self.symbols.names.insert(name, symbol);
                Ok(())
            }
            Some(_) if symbol == Symbol::Undefined => Ok(()),
            // Of variables with the linkage `.common`, one stands for all.
            Some(known) if *known == symbol => Ok(()),
            Some(_) => Err(self.error(span, format!("{name} is defined twice"))),
        }
    }

    fn functions(&mut self, source: &Source<'a>) -> Result<(), LoadError> {
        for function in &source.functions {
            let defined = function.body.is_some();
            let shape = if function.is_entry {
                op::Shape::default()
            } else {
                lower::formals(&function.signature).map_err(|reason| self.error(function.span, reason))?.0
            };
            if let Some(&Symbol::Function(index)) = self.symbols.names.get(function.name) {
                if defined && self.symbols.defined[index] {
                    return Err(self.error(function.span, format!("{} is defined twice", function.name)));
                }
                let known = &self.symbols.shapes[index];
                if shape != *known {
                    let is_known = self.symbols.defined[index];
                    let (with, without) = if defined { (known, &shape) } else { (&shape, known) };
                    if !(defined || is_known) || !with.differs_by_result(without) {
                        return Err(
                            self.error(function.span, format!("{} is declared otherwise before", function.name))
                        );
                    }
                    self.symbols.without_result.insert(index);
                    if defined {
                        self.symbols.shapes[index] = shape;
                    }
                }
                self.symbols.defined[index] |= defined && !function.is_entry;
                continue;
            }
            let index = self.symbols.shapes.len();
            self.symbols.shapes.push(shape);
            self.symbols.defined.push(defined && !function.is_entry);
            self.name(function.name, Symbol::Function(index), function.span)?;
        }
        Ok(())
    }

    fn bodies(&mut self, source: &Source<'a>, module: &mut Module) -> Result<(), LoadError> {
        module.functions = vec![op::Function::default(); self.symbols.shapes.len()];
        for function in &source.functions {
            let (Some(body), Some(&Symbol::Function(index))) = (&function.body, self.symbols.names.get(function.name))
            else {
                continue;
            };
            if module.functions[index].is_defined {
                return Err(self.error(function.span, format!("{} is defined twice", function.name)));
            }
            module.functions[index] = match lower::lower(self.text, self.symbols, function, body) {
                Err(error) if error.is_unsupported => {
                    let shape = self.symbols.shapes[index].clone();
                    op::Function { is_defined: true, unsupported: Some(error), shape, ..op::Function::default() }
                }
                lowered => lowered?,
            };
            if function.is_entry {
                module.kernels.push(self.kernel(function, index)?);
            }
        }
        Ok(())
    }

    fn kernel(&self, function: &Function<'a>, index: usize) -> Result<KernelHead, LoadError> {
        let (placed, bytes) = lower::kernel_parameters(&function.signature.parameters);
        if bytes > lower::MOST_PARAMETERS {
            return Err(self.error(function.span, "a kernel has at most 32764 bytes of parameters"));
        }
        let narrow = |value| usize::try_from(value).unwrap_or(usize::MAX);
        let parameter = |(declaration, offset): &(&Declaration<'a>, u64)| Parameter {
            offset: narrow(*offset),
            size: narrow(declaration.size()),
            align: narrow(declaration.alignment()),
        };
        Ok(KernelHead {
            name: function.name.to_owned(),
            function: index,
            parameters: placed.iter().map(parameter).collect(),
            parameter_bytes: narrow(bytes),
            max_threads: function.max_threads,
            required_block: function.required_block,
        })
    }

    fn first_values(&mut self, source: &Source<'a>, module: &mut Module) -> Result<(), LoadError> {
        module.first_values = vec![Vec::new(); module.variables.len()];
        for declaration in &source.variables {
            let Some(&Symbol::Variable(index)) = self.symbols.names.get(declaration.name) else { continue };
            if declaration.linkage == Linkage::Extern {
                continue;
            }
            let mut values = Vec::new();
            for (at, initial) in &declaration.initial {
                let value = self.first_value(initial, declaration)?;
                let bytes = declaration.type_.bytes();
                values.push(FirstValue { offset: at.saturating_mul(u64::from(bytes)), bytes, value });
            }
            if !values.is_empty() {
                module.first_values[index] = values;
            }
        }
        Ok(())
    }

    fn first_value(&self, initial: &Initial<'a>, declaration: &Declaration<'a>) -> Result<Value, LoadError> {
        match *initial {
            Initial::Number(number) => first_number(number, declaration.type_)
                .map(Value::Number)
                .ok_or_else(|| self.error(declaration.span, "a floating-point value does not fit the type")),
            Initial::Symbol { name, addend, mask } => match self.symbols.names.get(name) {
                Some(&Symbol::Variable(index)) => Ok(Value::Variable { index, addend, mask }),
                Some(&Symbol::Function(index)) => Ok(Value::Function { index, addend, mask }),
                _ => Err(self.error(declaration.span, format!("{name} has no address in memory"))),
            },
        }
    }
}

/// The bits of a number in a variable of the type.
#[expect(clippy::cast_possible_truncation, reason = "a constant is rounded to its type")]
#[expect(clippy::cast_precision_loss, reason = "a constant is rounded to its type")]
fn first_number(number: Number, type_: Type) -> Option<u64> {
    let float = match number {
        Number::Integer(value) if !type_.is_float() => return Some(value),
        Number::Integer(value) => value.cast_signed() as f64,
        Number::Single(bits) => f64::from(f32::from_bits(bits)),
        Number::Double(bits) => f64::from_bits(bits),
    };
    match (type_, number) {
        (Type::F32 | Type::B32, Number::Single(bits)) => Some(u64::from(bits)),
        (Type::F32, _) => Some(u64::from((float as f32).to_bits())),
        (Type::F64, _) => Some(float.to_bits()),
        (Type::B64, Number::Double(bits)) => Some(bits),
        _ => None,
    }
}

fn variable(declaration: &Declaration<'_>) -> Variable {
    Variable {
        name: declaration.name.to_owned(),
        space: if declaration.space == types::Space::Const { Space::Const } else { Space::Global },
        size: declaration.size(),
        align: declaration.alignment(),
        is_managed: declaration.is_managed,
    }
}
