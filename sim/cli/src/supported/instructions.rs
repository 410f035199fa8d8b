//! The instructions of PTX, each tried with every type: what the interpreter loads is supported.

use ptx::Module;

use super::forms::{CHAPTERS, Form, PRODUCTS, REGISTERS, SHAPES, TYPES};

/// The register of a type, in the kernel of [`loads`]; `doubled`: of twice the width.
fn register(type_: &str, doubled: bool) -> &'static str {
    let bits = match type_ {
        "pred" => return "%p",
        "b8" | "u8" | "s8" | "b16" | "u16" | "s16" | "f16" | "bf16" => 16,
        "b128" => 128,
        _ if type_.ends_with("64") => 64,
        _ => 32,
    };
    match bits << u32::from(doubled) {
        16 => "%h",
        32 => "%r",
        64 => "%q",
        // Declared in no kernel: registers of 128 bits are not supported.
        _ => "%wide",
    }
}

/// Whether the interpreter loads a kernel with this instruction.
fn loads(instruction: &str) -> bool {
    let source = format!(
        ".version 8.7\n.target sm_80\n.address_size 64\n.func callee() {{ ret; }}\n.visible .entry k()\n{{\n\
         .reg .pred %p; .reg .b16 %h; .reg .b32 %r; .reg .b64 %q; .shared .align 16 .b8 memory[256];\n\
         TARGETS: .branchtargets END;\n{instruction};\nEND: ret;\n}}\n"
    );
    Module::load(&source).is_ok()
}

/// The instruction of a form, with registers for its operands.
fn instruction(form: &str, type_: &str) -> String {
    let (opcode, operands) = form.split_once(' ').unwrap_or((form, ""));
    let opcode: Vec<&str> = opcode.split('.').map(|part| if part == "T" { type_ } else { part }).collect();
    let mut text = opcode.join(".") + " ";
    for part in operands.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
        let word = part.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
        text.push_str(match word {
            "D" => register(type_, false),
            "W" => register(type_, true),
            "H" => "%h",
            "R" => "%r",
            "Q" | "A" => "%q",
            "P" => "%p",
            "S" => "memory",
            other => other,
        });
        text.push_str(&part[word.len()..]);
    }
    text
}

/// The answer of a row: the types, a plain yes of an instruction without types, or no.
fn answer(forms: &[&str]) -> String {
    let typed = forms.iter().any(|form| form.split([' ', '.']).any(|part| part == "T"));
    let supported = |type_: &str| forms.iter().any(|form| loads(&instruction(form, type_)));
    if !typed {
        return if supported("b32") { "yes".to_owned() } else { "no".to_owned() };
    }
    let types: Vec<String> = TYPES.iter().filter(|type_| supported(type_)).map(|type_| format!("`.{type_}`")).collect();
    if types.is_empty() { "no".to_owned() } else { types.join(" ") }
}

/// Whether a product loads with fragments of any numbers of registers.
fn multiplies(opcode: &str, [d, a]: [&str; 2]) -> bool {
    let fragments =
        |type_: &str| [1, 2, 4, 8].map(|count| vec![if type_ == "f64" { "%q" } else { "%r" }; count].join(", "));
    let (sums, factors) = (fragments(d), fragments(a));
    sums.iter().any(|sum| {
        factors.iter().any(|first| {
            factors.iter().any(|second| loads(&format!("{opcode} {{{sum}}}, {{{first}}}, {{{second}}}, {{{sum}}}")))
        })
    })
}

/// The types of the products of each shape.
fn products(name: &str) -> Vec<(String, String)> {
    let types = |shape: &str| {
        let known = PRODUCTS.iter().filter(|(d, a)| {
            let operation = if *a == "b1" { ".xor.popc" } else { "" };
            let types = if name == "wmma.mma" && *a == "f16" { format!("{d}.{d}") } else { format!("{d}.{a}.{a}.{d}") };
            multiplies(&format!("{name}{operation}.sync.aligned.row.col.{shape}.{types}"), [d, a])
                || multiplies(&format!("{name}.sync.aligned.{shape}.row.col.{types}{operation}"), [d, a])
        });
        known.map(|(d, a)| format!("`.{d}` of `.{a}`")).collect::<Vec<_>>().join(", ")
    };
    let rows = SHAPES.iter().map(|shape| (format!("`{name}` `.{shape}`"), types(shape)));
    rows.filter(|(_, types)| !types.is_empty()).collect()
}

/// The types of numbers, unlike those of bits.
fn values() -> impl Iterator<Item = &'static &'static str> {
    TYPES.iter().filter(|type_| type_.starts_with(['u', 's', 'f']) || type_.starts_with("bf"))
}

/// The types that each type converts from.
fn conversions() -> Vec<(String, String)> {
    let row = |to: &&str| {
        let converts = |from: &&str| {
            let rounding = ["", ".rn", ".rni", ".rzi", ".rna", ".rn.satfinite"];
            let same = |mode: &&str| {
                let (d, a) = (register(to, false), register(from, false));
                let two = to.ends_with("x2");
                let operands = if two { format!("{d}, {a}, {a}") } else { format!("{d}, {a}") };
                loads(&format!("cvt{mode}.{to}.{from} {operands}"))
            };
            rounding.iter().any(same)
        };
        let types: Vec<String> = values().filter(|from| converts(from)).map(|from| format!("`.{from}`")).collect();
        (format!("`cvt` to `.{to}`"), if types.is_empty() { "no".to_owned() } else { types.join(" ") })
    };
    let mut rows: Vec<_> = values().chain(&["tf32", "e4m3x2", "e5m2x2"]).map(row).collect();
    let none = |(to, from): &(String, String)| from != "no" || to.contains("x2");
    rows.retain(none);
    let packs = ["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"];
    let pack = |to: &&&str| {
        ["cvt.pack.sat.T.s32 %r, %r, %r", "cvt.pack.sat.T.s32.b32 %r, %r, %r, %r"]
            .iter()
            .any(|form| loads(&form.replace('T', to)))
    };
    let types: Vec<String> = packs.iter().filter(pack).map(|to| format!("`.{to}`")).collect();
    rows.push(("`cvt.pack.sat` to".to_owned(), types.join(" ")));
    rows
}

/// The tables of instructions, in Markdown.
pub(super) fn tables() -> String {
    let mut text = String::new();
    let mut table = |title: &str, heads: [&str; 2], rows: Vec<(String, String)>| {
        text.push_str(&format!("### {title}\n\n| {} | {} |\n|---|---|\n", heads[0], heads[1]));
        for (name, answer) in rows {
            text.push_str(&format!("| {name} | {answer} |\n"));
        }
        text.push('\n');
    };
    for (title, forms) in CHAPTERS {
        let row = |(name, forms): &Form| {
            let code = |name: &str| match name.split_once(" of ") {
                Some((name, rest)) => format!("`{name}` of {rest}"),
                None => format!("`{name}`"),
            };
            let names: Vec<String> = name.split(", ").map(code).collect();
            (names.join(", "), answer(forms))
        };
        table(title, ["instruction", "types"], forms.iter().map(row).collect());
    }
    table("Conversions", ["instruction", "from"], conversions());
    let all = [products("mma"), products("wmma.mma")].concat();
    table("Products of matrices", ["shape", "types of the sums and the factors"], all);
    let reads = |(type_, name): &(&str, &str)| {
        let yes = loads(&format!("mov.{type_} {}, {name}", register(type_, false)));
        (format!("`{name}`"), if yes { "yes".to_owned() } else { "no".to_owned() })
    };
    table("Special registers", ["register", "supported"], REGISTERS.iter().map(reads).collect());
    text
}
