//! From text to options and their values.

use std::iter::Peekable;

use super::error::{Bad, ConfError};
use super::options::{find, meant};

/// A word, without the spaces in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// As it was written, with spaces inside.
    pub(super) written: String,
    pub(super) column: usize,
}

impl Word {
    /// Where such a character of it is first.
    fn column_of(&self, is_it: impl Fn(char) -> bool) -> usize {
        self.column + self.written.chars().take_while(|c| !is_it(*c)).count()
    }

    /// As shells and CMake part a list.
    fn no_semicolon(&self) -> Result<(), Bad> {
        match self.written.contains(';') {
            true => Err(Bad {
                column: self.column_of(|c| c == ';'),
                reason: "expected a comma between options, found ';'".to_owned(),
            }),
            false => Ok(()),
        }
    }
}

/// What stands behind an option's colon.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value {
    Word(Word),
    /// `[key:value,...]`
    List(Vec<(Word, Word)>),
}

/// An option as it was given.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) name: Word,
    pub(super) value: Value,
    /// Where the value begins.
    pub(super) column: usize,
}

#[derive(Debug)]
enum Token {
    Word(Word),
    /// One of `,:[]`.
    Mark(char, usize),
}

/// The options of a text, in its order.
pub(super) fn options(text: &str) -> Result<Vec<Given>, ConfError> {
    let end = text.chars().count() + 1;
    let mut parser = Parser {
        tokens: tokens(text).into_iter().peekable(),
        end,
    };
    let mut found = Vec::new();
    while parser.tokens.peek().is_some() {
        found.push(parser.option().map_err(Bad::into_error)?);
        match (parser.tokens.peek(), found.last().map(|given| &given.value)) {
            (None, _) => {}
            // Only a space parts the value from another option.
            (Some(Token::Mark(':', _)), Some(Value::Word(word))) if word.text != word.written.trim_end() => {
                let column = word.column_of(char::is_whitespace);
                let reason = "expected a comma between options, found a space".to_owned();
                return Err(Bad { column, reason }.into_error());
            }
            _ => parser.mark(',', "a comma between options").map_err(Bad::into_error)?,
        }
    }
    Ok(found)
}

fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    for (at, c) in text.chars().enumerate() {
        let column = at + 1;
        match (c, found.last_mut()) {
            (',' | ':' | '[' | ']', _) => found.push(Token::Mark(c, column)),
            (_, Some(Token::Word(word))) => {
                word.written.push(c);
                word.text.extend(Some(c).filter(|c| !c.is_whitespace()));
            }
            _ if c.is_whitespace() => {}
            _ => found.push(Token::Word(Word {
                text: c.to_string(),
                written: c.to_string(),
                column,
            })),
        }
    }
    found
}

struct Parser<I: Iterator<Item = Token>> {
    tokens: Peekable<I>,
    /// The column behind the last character.
    end: usize,
}

impl<I: Iterator<Item = Token>> Parser<I> {
    fn option(&mut self) -> Result<Given, Bad> {
        let name = self.word("the name of an option")?;
        self.no_equals_sign(&name)?;
        name.no_semicolon()?;
        if !matches!(self.tokens.peek(), Some(Token::Mark(':', _))) {
            // A name that is cut off is told by its beginning.
            find(&name)?;
        }
        self.mark(':', "a colon and a value behind the option")?;
        let (value, column) = match self.tokens.next_if(|token| matches!(token, Token::Mark('[', _))) {
            Some(Token::Mark(_, column)) => (self.list()?, column),
            _ => {
                let word = self.word("a value")?;
                if name.text != "job" {
                    word.no_semicolon()?;
                }
                let column = word.column;
                (Value::Word(word), column)
            }
        };
        Ok(Given { name, value, column })
    }

    fn list(&mut self) -> Result<Value, Bad> {
        let mut pairs = Vec::new();
        loop {
            if self
                .tokens
                .next_if(|token| matches!(token, Token::Mark(']', _)))
                .is_some()
            {
                return Ok(Value::List(pairs));
            }
            let key = self.word("key:value or the list's closing bracket")?;
            self.mark(':', "a colon and a value")?;
            let value = self.word("a value")?;
            value.no_semicolon()?;
            pairs.push((key, value));
            if !matches!(self.tokens.peek(), Some(Token::Mark(']', _))) {
                self.mark(',', "a comma or the list's closing bracket")?;
            }
        }
    }

    /// As shells and INI files have it.
    fn no_equals_sign(&mut self, name: &Word) -> Result<(), Bad> {
        let Some((option, value)) = name.written.split_once('=') else {
            return Ok(());
        };
        let value = match (value.split(['=', ';']).next().unwrap_or_default(), self.tokens.peek()) {
            ("", Some(Token::Mark('[', _))) => "[...]".to_owned(),
            (value, _) => short(value),
        };
        let right = meant(option.trim()).map(|option| format!(": write {option}:{value}"));
        let reason = "expected a colon between an option and its value, found '='".to_owned();
        Err(Bad {
            column: name.column_of(|c| c == '='),
            reason: reason + &right.unwrap_or_default(),
        })
    }

    fn word(&mut self, expected: &str) -> Result<Word, Bad> {
        match self.tokens.next() {
            Some(Token::Word(word)) => Ok(word),
            other => Err(self.unexpected(other, expected)),
        }
    }

    fn mark(&mut self, mark: char, expected: &str) -> Result<(), Bad> {
        match self.tokens.next() {
            Some(Token::Mark(found, _)) if found == mark => Ok(()),
            other => Err(self.unexpected(other, expected)),
        }
    }

    fn unexpected(&self, found: Option<Token>, expected: &str) -> Bad {
        let (column, found) = match found {
            Some(Token::Word(word)) => (word.column, quote(&word.written)),
            Some(Token::Mark(mark, column)) => (column, format!("{mark:?}")),
            None => (self.end, "the end".to_owned()),
        };
        Bad {
            column,
            reason: format!("expected {expected}, found {found}"),
        }
    }
}

/// A part of the text as a message may show it: printable, and not endless.
pub(super) fn quote(written: &str) -> String {
    format!("\"{}\"", short(written))
}

fn short(written: &str) -> String {
    const MOST: usize = 40;
    let written = gpumem_text::clean(written.trim());
    let short: String = written.chars().take(MOST).collect();
    let rest = if short.len() < written.len() { "..." } else { "" };
    short + rest
}
