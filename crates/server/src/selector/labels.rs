//! Parses label selectors: `a=b, c!=d, e in (f,g), h notin (i), j, !k, l>1`. Syntax errors have upstream's
//! messages.

use crate::validation::{FieldError, names};

/// One requirement of a label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) key: String,
    must: Must,
}

/// The operator of a requirement with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Must {
    Exist,
    NotExist,
    BeIn(Vec<String>),
    NotBeIn(Vec<String>),
    BeMoreThan(i64),
    BeLessThan(i64),
}

impl Label {
    pub(super) fn matches(&self, value: Option<&str>) -> bool {
        let among = |values: &[String]| value.is_some_and(|value| values.iter().any(|it| it == value));
        let number = || value.and_then(|it| it.parse::<i64>().ok());
        match &self.must {
            Must::Exist => value.is_some(),
            Must::NotExist => value.is_none(),
            Must::BeIn(values) => among(values),
            // An absent label also satisfies `notin`.
            Must::NotBeIn(values) => !among(values),
            Must::BeMoreThan(bound) => number().is_some_and(|it| *bound < it),
            Must::BeLessThan(bound) => number().is_some_and(|it| it < *bound),
        }
    }
}

pub(super) fn parse(text: &str) -> Result<Vec<Label>, String> {
    let mut tokens = SelectorLexer { tokens: scan(text), at: 0 };
    let mut labels = Vec::new();
    loop {
        match tokens.peek() {
            Token::End => return Ok(labels),
            Token::Word(_) | Token::Symbol("!") => {
                labels.push(
                    requirement(&mut tokens).map_err(|it| format!("unable to parse requirement: {it}"))?,
                );
            }
            other => return Err(format!("found '{other}', expected: !, identifier, or 'end of string'")),
        }
        match tokens.next() {
            Token::End => return Ok(labels),
            Token::Symbol(",") => {
                let next = tokens.peek();
                if !matches!(next, Token::Word(_) | Token::Symbol("!")) {
                    return Err(format!("found '{next}', expected: identifier after ','"));
                }
            }
            other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
        }
    }
}

fn requirement(tokens: &mut SelectorLexer) -> Result<Label, String> {
    let mut token = tokens.next();
    let is_negated = token == Token::Symbol("!");
    if is_negated {
        token = tokens.next();
    }
    let Token::Word(key) = token else { return Err(format!("found '{token}', expected: identifier")) };
    let wrong = names::qualified(&key);
    if !wrong.is_empty() {
        return Err(joined(&[FieldError::invalid("<nil>", &*key, &wrong.join("; "))]));
    }
    if is_negated {
        return Ok(Label { key, must: Must::NotExist });
    }
    if matches!(tokens.peek(), Token::End | Token::Symbol(",")) {
        return Ok(Label { key, must: Must::Exist });
    }
    let operator = tokens.next();
    let operator = match &operator {
        Token::Symbol(it @ ("=" | "==" | "!=" | ">" | "<")) => *it,
        Token::Word(it) if it == "in" => "in",
        Token::Word(it) if it == "notin" => "notin",
        other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
    };
    let values = if matches!(operator, "in" | "notin") { set(tokens)? } else { vec![exact(tokens)?] };
    let mut causes = Vec::new();
    let bound = values.first().and_then(|it| it.parse::<i64>().ok());
    if matches!(operator, "<" | ">") && bound.is_none() {
        let why = "for 'Gt', 'Lt' operators, the value must be an integer";
        causes.push(FieldError::invalid("values[0]", values.first().map_or("", String::as_str), why));
    }
    for (at, value) in values.iter().enumerate() {
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            causes.push(FieldError::invalid(format!("values[{at}][{key}]"), &**value, &wrong.join("; ")));
        }
    }
    if !causes.is_empty() {
        return Err(joined(&causes));
    }
    let must = match (operator, bound) {
        ("!=" | "notin", _) => Must::NotBeIn(values),
        (">", Some(bound)) => Must::BeMoreThan(bound),
        ("<", Some(bound)) => Must::BeLessThan(bound),
        _ => Must::BeIn(values),
    };
    Ok(Label { key, must })
}

fn joined(causes: &[FieldError]) -> String {
    let messages: Vec<_> = causes.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
    if let [one] = &messages[..] { one.clone() } else { format!("[{}]", messages.join(", ")) }
}

/// Parses `(a,b)`, where an empty item is the empty value.
fn set(tokens: &mut SelectorLexer) -> Result<Vec<String>, String> {
    let open = tokens.next();
    if open != Token::Symbol("(") {
        return Err(format!("found '{open}' expected: '('"));
    }
    let mut values = Vec::new();
    match tokens.peek() {
        Token::Symbol(")") => values.push(String::new()),
        Token::Word(_) | Token::Symbol(",") => loop {
            match tokens.next() {
                Token::Word(value) => {
                    values.push(value);
                    match tokens.peek() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => break,
                        other => return Err(format!("found '{other}', expected: ',' or ')'")),
                    }
                }
                Token::Symbol(",") => {
                    let is_last = tokens.peek() == Token::Symbol(")");
                    if values.is_empty() || is_last || tokens.peek() == Token::Symbol(",") {
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

fn exact(tokens: &mut SelectorLexer) -> Result<String, String> {
    if matches!(tokens.peek(), Token::End | Token::Symbol(",")) {
        return Ok(String::new());
    }
    match tokens.next() {
        Token::Word(value) => Ok(value),
        other => Err(format!("found '{other}', expected: identifier")),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A key, a value, or a word such as `in`.
    Word(String),
    Symbol(&'static str),
    End,
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Word(it) => f.write_str(it),
            Self::Symbol(it) => f.write_str(it),
            Self::End => Ok(()),
        }
    }
}

/// The tokens of a selector, with the position of the parser.
struct SelectorLexer {
    tokens: Vec<Token>,
    at: usize,
}

impl SelectorLexer {
    fn peek(&self) -> Token {
        self.tokens.get(self.at).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.at += 1;
        token
    }
}

fn scan(text: &str) -> Vec<Token> {
    const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
    let mut tokens = Vec::new();
    let is_symbol = |it: char| matches!(it, '=' | '!' | '(' | ')' | ',' | '>' | '<');
    let is_space = |it: char| matches!(it, ' ' | '\t' | '\r' | '\n');
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(is_space);
        if rest.is_empty() || rest.starts_with('\0') {
            return tokens;
        }
        if let Some(symbol) = SYMBOLS.into_iter().find(|it| rest.starts_with(it)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
            continue;
        }
        let end = rest.find(|it| is_symbol(it) || is_space(it) || it == '\0').unwrap_or(rest.len());
        tokens.push(Token::Word(rest[..end].to_owned()));
        rest = &rest[end..];
    }
}
