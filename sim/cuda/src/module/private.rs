#![forbid(unsafe_code)]
//! The names of PTX modules that are private to each: a linker tells those of several texts apart, such as the `$str` that
//! nvcc makes of the first string in each file.

use std::collections::{HashMap, HashSet};

/// Directives that a line holds, not a statement with a semicolon.
const LINES: [&str; 5] = [".version", ".target", ".address_size", ".file", ".loc"];
const LINKAGES: [&str; 4] = [".visible", ".extern", ".weak", ".common"];
const VARIABLES_AND_FUNCTIONS: [&str; 4] = [".global", ".const", ".shared", ".func"];

/// Renames the private variables and functions of each text whose name another text has, too. Of names that are private in
/// all texts, the first text keeps its own.
pub(super) fn separated(texts: &[String]) -> Vec<String> {
    let names: Vec<HashMap<&str, bool>> = texts.iter().map(|text| names(text)).collect();
    let (mut seen, mut shared, mut public) = (HashSet::new(), HashSet::new(), HashSet::new());
    for (&name, &is_private) in names.iter().flatten() {
        if !seen.insert(name) {
            shared.insert(name);
        }
        if !is_private {
            public.insert(name);
        }
    }
    let mut kept = HashSet::new();
    let renamed = texts.iter().zip(&names).enumerate().map(|(index, (text, names))| {
        let private = names.iter().filter(|&(_, &is_private)| is_private).map(|(&name, _)| name);
        let clashing = private.filter(|name| shared.contains(name) && (public.contains(name) || !kept.insert(*name)));
        let clashing: HashSet<&str> = clashing.collect();
        if clashing.is_empty() { text.clone() } else { with_suffix(text, &clashing, &format!("$private{index}")) }
    });
    renamed.collect()
}

/// The text with a suffix behind these names, other than in comments and strings.
fn with_suffix(text: &str, names: &HashSet<&str>, suffix: &str) -> String {
    let mut renamed = String::with_capacity(text.len());
    for token in Tokens(text) {
        renamed.push_str(token);
        if names.contains(token) {
            renamed.push_str(suffix);
        }
    }
    renamed
}

/// The names of the variables and functions that a module declares, and whether each is private.
fn names(text: &str) -> HashMap<&str, bool> {
    let mut names = HashMap::new();
    let (mut braces, mut parentheses, mut skips_line) = (0usize, 0usize, false);
    // Of the statement: whether it has begun, declares one of these, is private, and has its name.
    let (mut begun, mut declares, mut private, mut named) = (false, false, true, false);
    for token in Tokens(text) {
        skips_line &= !token.contains('\n') || token.starts_with("/*");
        match token {
            _ if skips_line => {}
            "{" => braces += 1,
            "}" => braces = braces.saturating_sub(1),
            _ if braces > 0 => {}
            "(" => parentheses += 1,
            ")" => parentheses = parentheses.saturating_sub(1),
            _ if parentheses > 0 => {}
            _ if !begun && LINES.contains(&token) => skips_line = true,
            _ if LINKAGES.contains(&token) => (begun, private) = (true, false),
            _ if token.starts_with('.') => {
                begun = true;
                declares |= VARIABLES_AND_FUNCTIONS.contains(&token);
            }
            _ if declares && !named && token.starts_with(starts_name) => {
                named = true;
                let is_private = names.entry(token).or_insert(true);
                *is_private &= private;
            }
            _ => {}
        }
        // A body ends a function; the braces of an initial value are followed by a semicolon, at which nothing has begun.
        if braces == 0 && parentheses == 0 && matches!(token, ";" | "}") {
            (begun, declares, private, named) = (false, false, true, false);
        }
    }
    names
}

fn starts_name(first: char) -> bool {
    first.is_ascii_alphabetic() || "_$%.".contains(first)
}

fn continues_name(next: char) -> bool {
    next.is_ascii_alphanumeric() || "_$".contains(next)
}

/// Names, directives, comments, strings, runs of other letters and digits, and single characters.
struct Tokens<'t>(&'t str);

impl<'t> Iterator for Tokens<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let text = self.0;
        let first = text.chars().next()?;
        let through = |end: &str, from: usize| text[from..].find(end).map_or(text.len(), |at| from + at + end.len());
        let len = match first {
            '"' => through("\"", 1),
            '/' if text.starts_with("//") => text.find('\n').unwrap_or(text.len()),
            '/' if text.starts_with("/*") => through("*/", 2),
            _ if starts_name(first) || first.is_ascii_digit() => {
                text[1..].find(|next| !continues_name(next)).map_or(text.len(), |at| at + 1)
            }
            _ => first.len_utf8(),
        };
        let (token, rest) = text.split_at(len);
        self.0 = rest;
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::separated;

    fn of(texts: &[&str]) -> Vec<String> {
        separated(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn private_names_of_several_texts_are_told_apart() {
        let first = ".version 8.0\n.target sm_80, debug\n.global .align 1 .b8 $str[3] = {65, 66};\n.func f() { ret; }";
        let second = ".version 8.0\n.file 1 \"$str\"\n.func (.param .b32 r) f(.param .b32 $str);\n
            .global .align 1 .b8 $str[2]; // $str\n.visible .entry k() { mov.u64 %rd1, $str; mov.u32 $string, $str+1; }";
        let renamed = ".version 8.0\n.file 1 \"$str\"\n.func (.param .b32 r) f$private1(.param .b32 $str$private1);\n
            .global .align 1 .b8 $str$private1[2]; // $str\n.visible .entry k() { mov.u64 %rd1, $str$private1; \
            mov.u32 $string, $str$private1+1; }";
        assert_eq!(of(&[first, second]), [first, renamed]);
    }

    #[test]
    fn names_that_one_text_shows_stay_in_that_text() {
        let private = ".const .b32 a = 1; .func b() { call a; }";
        let renamed = ".const .b32 a$private0 = 1; .func b() { call a$private0; }";
        for public in
            [".visible .const .b32 a;", ".extern .func a();", ".weak .global .b32 a;", ".common .global .b32 a;"]
        {
            assert_eq!(of(&[private, public, public]), [renamed, public, public]);
        }
    }

    #[test]
    fn a_function_that_is_declared_with_a_linkage_is_not_private() {
        let text = ".visible .func f(); .func f() { ret; } .global .b32 v = 1;";
        assert_eq!(
            of(&[text, ".extern .func f(); .extern .shared .b8 s[];"]),
            [text, ".extern .func f(); .extern .shared .b8 s[];"]
        );
    }
}
