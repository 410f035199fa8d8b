//! The comparison operators, by name and on floating-point values.

/// A comparison operator. The unordered ones (`Equ` and so on) are also true if an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Unsigned, like those of `.u` types.
    Lo,
    Ls,
    Hi,
    Hs,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

impl Comparison {
    /// From its name in the source, without the dot.
    pub(crate) fn parse(name: &str) -> Option<Comparison> {
        Some(match name {
            "eq" => Comparison::Eq,
            "ne" => Comparison::Ne,
            "lt" => Comparison::Lt,
            "le" => Comparison::Le,
            "gt" => Comparison::Gt,
            "ge" => Comparison::Ge,
            "lo" => Comparison::Lo,
            "ls" => Comparison::Ls,
            "hi" => Comparison::Hi,
            "hs" => Comparison::Hs,
            "equ" => Comparison::Equ,
            "neu" => Comparison::Neu,
            "ltu" => Comparison::Ltu,
            "leu" => Comparison::Leu,
            "gtu" => Comparison::Gtu,
            "geu" => Comparison::Geu,
            "num" => Comparison::Num,
            "nan" => Comparison::Nan,
            _ => return None,
        })
    }

    /// Whether it holds between two floating-point values.
    pub(crate) fn holds(self, a: f64, b: f64) -> bool {
        let unordered = a.is_nan() || b.is_nan();
        match self {
            Comparison::Eq => a == b,
            Comparison::Ne => !unordered && a != b,
            Comparison::Lt | Comparison::Lo => a < b,
            Comparison::Le | Comparison::Ls => a <= b,
            Comparison::Gt | Comparison::Hi => a > b,
            Comparison::Ge | Comparison::Hs => a >= b,
            Comparison::Equ => unordered || a == b,
            Comparison::Neu => a != b,
            Comparison::Ltu => unordered || a < b,
            Comparison::Leu => unordered || a <= b,
            Comparison::Gtu => unordered || a > b,
            Comparison::Geu => unordered || a >= b,
            Comparison::Num => !unordered,
            Comparison::Nan => unordered,
        }
    }
}
