//! Parses label selectors: `a=b, c!=d, e in (f,g), h notin (i), j, !k, l>1`. Syntax errors have upstream's
//! messages.

use muster_api::labels::{LabelOperator, LabelRequirement};
use muster_api::text::Text;

use crate::validation::{FieldError, names};

/// Parses a label selector into its requirements.
pub(super) fn parse_label_selector(text: &str) -> Result<Vec<LabelRequirement>, String> {
    let mut tokens = SelectorTokens { tokens: tokenize(text), position: 0 };
    let mut labels = Vec::new();
    loop {
        match tokens.peek() {
            SelectorToken::End => return Ok(labels),
            SelectorToken::Word(_) | SelectorToken::Symbol("!") => {
                labels.push(
                    parse_requirement(&mut tokens)
                        .map_err(|it| format!("unable to parse requirement: {it}"))?,
                );
            }
            other => return Err(format!("found '{other}', expected: !, identifier, or 'end of string'")),
        }
        match tokens.next() {
            SelectorToken::End => return Ok(labels),
            SelectorToken::Symbol(",") => {
                let next = tokens.peek();
                if !matches!(next, SelectorToken::Word(_) | SelectorToken::Symbol("!")) {
                    return Err(format!("found '{next}', expected: identifier after ','"));
                }
            }
            other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
        }
    }
}

/// Parses the next requirement of a label selector, such as `a in (b,c)`.
fn parse_requirement(tokens: &mut SelectorTokens) -> Result<LabelRequirement, String> {
    let mut token = tokens.next();
    let is_negated = token == SelectorToken::Symbol("!");
    if is_negated {
        token = tokens.next();
    }
    let SelectorToken::Word(key) = token else {
        return Err(format!("found '{token}', expected: identifier"));
    };
    let wrong = names::qualified_name_errors(&key);
    if !wrong.is_empty() {
        return Err(join_errors(&[FieldError::invalid("<nil>", &*key, &wrong.join("; "))]));
    }
    if is_negated {
        return Ok(LabelRequirement { key: key.into(), operator: LabelOperator::DoesNotExist });
    }
    if matches!(tokens.peek(), SelectorToken::End | SelectorToken::Symbol(",")) {
        return Ok(LabelRequirement { key: key.into(), operator: LabelOperator::Exists });
    }
    let operator = tokens.next();
    let operator = match &operator {
        SelectorToken::Symbol(it @ ("=" | "==" | "!=" | ">" | "<")) => *it,
        SelectorToken::Word(it) if it == "in" => "in",
        SelectorToken::Word(it) if it == "notin" => "notin",
        other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
    };
    let values = if matches!(operator, "in" | "notin") {
        parse_value_set(tokens)?
    } else {
        vec![parse_exact_value(tokens)?]
    };
    let mut causes = Vec::new();
    let bound = values.first().and_then(|it| it.parse::<i64>().ok());
    if matches!(operator, "<" | ">") && bound.is_none() {
        let why = "for 'Gt', 'Lt' operators, the value must be an integer";
        causes.push(FieldError::invalid("values[0]", values.first().map_or("", String::as_str), why));
    }
    for (at, value) in values.iter().enumerate() {
        let wrong = names::label_value_errors(value);
        if !wrong.is_empty() {
            causes.push(FieldError::invalid(format!("values[{at}][{key}]"), &**value, &wrong.join("; ")));
        }
    }
    if !causes.is_empty() {
        return Err(join_errors(&causes));
    }
    let values = values.into_iter().map(Text::from).collect();
    let operator = match (operator, bound) {
        ("!=" | "notin", _) => LabelOperator::NotIn(values),
        (">", Some(bound)) => LabelOperator::GreaterThan(bound),
        ("<", Some(bound)) => LabelOperator::LessThan(bound),
        _ => LabelOperator::In(values),
    };
    Ok(LabelRequirement { key: key.into(), operator })
}

/// Returns one error message for a list of errors, in upstream's format.
fn join_errors(causes: &[FieldError]) -> String {
    let messages: Vec<_> = causes.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
    if let [one] = &messages[..] { one.clone() } else { format!("[{}]", messages.join(", ")) }
}

/// Parses the list of values after `in` or `notin`, such as `(a,b)`. An empty item, as in `(a,)`, is the empty value.
fn parse_value_set(tokens: &mut SelectorTokens) -> Result<Vec<String>, String> {
    let open = tokens.next();
    if open != SelectorToken::Symbol("(") {
        return Err(format!("found '{open}' expected: '('"));
    }
    let mut values = Vec::new();
    match tokens.peek() {
        SelectorToken::Symbol(")") => values.push(String::new()),
        SelectorToken::Word(_) | SelectorToken::Symbol(",") => loop {
            match tokens.next() {
                SelectorToken::Word(value) => {
                    values.push(value);
                    match tokens.peek() {
                        SelectorToken::Symbol(",") => {}
                        SelectorToken::Symbol(")") => break,
                        other => return Err(format!("found '{other}', expected: ',' or ')'")),
                    }
                }
                SelectorToken::Symbol(",") => {
                    let is_last = tokens.peek() == SelectorToken::Symbol(")");
                    if values.is_empty() || is_last || tokens.peek() == SelectorToken::Symbol(",") {
                        values.push(String::new());
                    }
                    if is_last {
                        break;
                    }
                }
                other => return Err(format!("found '{other}', expected: ',', or identifier")),
            }
        },
        other => return Err(format!("found '{other}', expected: ',', ')' or identifier")),
    }
    // The closing parenthesis.
    tokens.next();
    values.sort_unstable();
    values.dedup();
    Ok(values)
}

/// Parses the value after `=`, `==`, `!=`, `<` or `>`. It may be empty.
fn parse_exact_value(tokens: &mut SelectorTokens) -> Result<String, String> {
    if matches!(tokens.peek(), SelectorToken::End | SelectorToken::Symbol(",")) {
        return Ok(String::new());
    }
    match tokens.next() {
        SelectorToken::Word(value) => Ok(value),
        other => Err(format!("found '{other}', expected: identifier")),
    }
}

/// A lexical token of a label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SelectorToken {
    /// A key, a value, or a word such as `in`.
    Word(String),
    /// An operator, a comma or a parenthesis.
    Symbol(&'static str),
    /// The end of the selector.
    End,
}

impl std::fmt::Display for SelectorToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Word(it) => f.write_str(it),
            Self::Symbol(it) => f.write_str(it),
            Self::End => Ok(()),
        }
    }
}

/// The tokens of a label selector, and the position of the next token.
struct SelectorTokens {
    tokens: Vec<SelectorToken>,
    position: usize,
}

impl SelectorTokens {
    /// Returns the next token without consuming it.
    fn peek(&self) -> SelectorToken {
        self.tokens.get(self.position).cloned().unwrap_or(SelectorToken::End)
    }

    /// Consumes and returns the next token.
    fn next(&mut self) -> SelectorToken {
        let token = self.peek();
        self.position += 1;
        token
    }
}

/// Splits a label selector into tokens. A NUL character ends the selector.
fn tokenize(text: &str) -> Vec<SelectorToken> {
    /// Symbols of the syntax of label selectors. A longer symbol comes before its prefix.
    const SELECTOR_SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
    let mut tokens = Vec::new();
    let is_symbol = |it: char| matches!(it, '=' | '!' | '(' | ')' | ',' | '>' | '<');
    let is_space = |it: char| matches!(it, ' ' | '\t' | '\r' | '\n');
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(is_space);
        if rest.is_empty() || rest.starts_with('\0') {
            return tokens;
        }
        if let Some(symbol) = SELECTOR_SYMBOLS.into_iter().find(|it| rest.starts_with(it)) {
            tokens.push(SelectorToken::Symbol(symbol));
            rest = &rest[symbol.len()..];
            continue;
        }
        let end = rest.find(|it| is_symbol(it) || is_space(it) || it == '\0').unwrap_or(rest.len());
        tokens.push(SelectorToken::Word(rest[..end].to_owned()));
        rest = &rest[end..];
    }
}
