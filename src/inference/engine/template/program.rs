//! A chat template as bytecode with checks. Templates are compiled here, and checks are inserted into the bytecode:
//! before every operator that can create a large value, and after every constructed value. The checks are in
//! `bounds.rs`.
//!
//! minijinja 3.0 has no simpler way. Its fuel counts instructions, but `x ~ x` doubles a string, so forty of them
//! create a terabyte within any budget that admits an ordinary template. A counting writer or formatter sees only what
//! is printed. Filters, functions and methods can be wrapped (`bounds.rs` does), but `~`, `+`, `*`, slices and list and
//! dict literals are instructions of the interpreter that no environment can replace. Limiting what is stored does not
//! help either: a doubled string can live in a local variable or a macro argument. Nor do custom value types: a
//! template creates its own values from literals. What remains is to change the template before it runs. That takes the
//! same `unstable_machinery` for the syntax tree as for the bytecode, and the bytecode is flat. The version is
//! therefore pinned to the patch, and `tests/data/hostile_templates.txt` contains the attacks.

use std::collections::BTreeMap;

use minijinja::machinery::{CodeGenerator, Instruction, Instructions, Token, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, ErrorKind, Value};

use super::bounds::{BEFORE_ADD, BEFORE_COMPARE, BEFORE_CONCAT, BEFORE_ITEM, BEFORE_MULTIPLY, BEFORE_SLICE, SETTLE};
use crate::foundation::base::limits::{TEMPLATE_BRANCHES_MAX, TEMPLATE_LITERAL_BYTES_MAX, TEMPLATE_TAG_TOKENS_MAX};

const NAME: &str = "chat";

/// A compiled template; borrows its source.
pub(super) struct Program<'source> {
    pub(super) main: Instructions<'source>,
    pub(super) blocks: BTreeMap<&'source str, Instructions<'source>>,
}

self_cell::self_cell!(
    /// A template's source and the compiled program.
    pub(super) struct Compiled {
        owner: String,
        #[covariant]
        dependent: Program,
    }
);

impl Compiled {
    /// Compiles `source`.
    pub(super) fn of(source: String, syntax: &SyntaxConfig) -> Result<Self, Error> {
        Self::try_new(source, |source| compile(source, syntax))
    }

    pub(super) fn source(&self) -> &str {
        self.borrow_owner()
    }

    pub(super) fn program(&self) -> &Program<'_> {
        self.borrow_dependent()
    }
}

fn compile<'source>(source: &'source str, syntax: &SyntaxConfig) -> Result<Program<'source>, Error> {
    screen(source, syntax)?;
    let mut code = CodeGenerator::new(NAME, source);
    code.compile_stmt(&parse(source, NAME, syntax.clone())?);
    let (main, blocks) = code.finish();
    let blocks = blocks.into_iter().map(|(name, plain)| Ok((name, checked(&plain)?)));
    Ok(Program { main: checked(&main)?, blocks: blocks.collect::<Result<_, Error>>()? })
}

/// The content of `{{ … }}` or `{% … %}`.
#[derive(Default)]
struct Tag {
    tokens: usize,
    text: usize,
    /// Upper bound of every number that its literals can produce.
    number: usize,
    repeats: bool,
}

impl Tag {
    /// Upper bound of the size that its literals can be multiplied to.
    fn bytes(&self) -> usize {
        (self.text + self.tokens).saturating_mul(self.number)
    }
}

/// Refuses what would run away during compilation, where no fuel is counted: the compiler folds constants (`'x' *
/// 100000000`) and recurses for every operator of a tag and every `elif`.
fn screen(source: &str, syntax: &SyntaxConfig) -> Result<(), Error> {
    let refuse = |line: u16, why: String| Err(Error::new(ErrorKind::SyntaxError, format!("{why} in line {line}")));
    let (mut tag, mut branches) = (Tag::default(), 0);
    for token in tokenize(source, false, syntax.clone()) {
        let (token, span) = token?;
        tag.tokens += 1;
        match token {
            Token::VariableStart | Token::BlockStart => tag = Tag { number: 1, ..Tag::default() },
            Token::Ident("elif") => branches += 1,
            Token::Str(text) => tag.text += text.len(),
            Token::String(text) => tag.text += text.len(),
            Token::Int(number) => tag.number = tag.number.saturating_mul((number as usize).saturating_add(1)),
            Token::Int128(_) | Token::Float(_) | Token::Div | Token::Pow => tag.number = usize::MAX,
            Token::Mul => tag.repeats = true,
            Token::VariableEnd | Token::BlockEnd if tag.repeats && tag.bytes() > TEMPLATE_LITERAL_BYTES_MAX => {
                return refuse(span.start_line, "a literal is repeated too often".to_owned());
            }
            _ => {}
        }
        if tag.tokens > TEMPLATE_TAG_TOKENS_MAX {
            return refuse(span.start_line, format!("a tag has more than {TEMPLATE_TAG_TOKENS_MAX} tokens"));
        }
        if branches > TEMPLATE_BRANCHES_MAX {
            return refuse(span.start_line, format!("it has more than {TEMPLATE_BRANCHES_MAX} `elif`s"));
        }
    }
    Ok(())
}

/// The same bytecode with checks.
fn checked<'source>(plain: &Instructions<'source>) -> Result<Instructions<'source>, Error> {
    let all = || (0..).map_while(|at| plain.get(at).map(|instruction| (at, instruction)));
    let mut places = Vec::new();
    let mut next = 0;
    for (_, instruction) in all() {
        places.push(next);
        next += with_checks(instruction).len() as u32;
    }
    places.push(next);
    let moved = |target: u32| {
        let place = places.get(target as usize).copied();
        place.ok_or_else(|| Error::new(ErrorKind::SyntaxError, "the compiler jumps out of the template"))
    };
    let mut bounded = Instructions::new(plain.name(), plain.source());
    for (at, instruction) in all() {
        for instruction in with_checks(instruction) {
            let instruction = match instruction {
                Instruction::Iterate(to) => Instruction::Iterate(moved(to)?),
                Instruction::Jump(to) => Instruction::Jump(moved(to)?),
                Instruction::JumpIfFalse(to) => Instruction::JumpIfFalse(moved(to)?),
                Instruction::JumpIfFalseOrPop(to) => Instruction::JumpIfFalseOrPop(moved(to)?),
                Instruction::JumpIfTrueOrPop(to) => Instruction::JumpIfTrueOrPop(moved(to)?),
                Instruction::BuildMacro(name, to, flags) => Instruction::BuildMacro(name, moved(to)?, flags),
                other => other,
            };
            match plain.get_line(at) {
                Some(line) => bounded.add_with_line(instruction, line as u16),
                None => bounded.add(instruction),
            };
        }
    }
    Ok(bounded)
}

/// An instruction with the checks around it.
fn with_checks<'source>(instruction: &Instruction<'source>) -> Vec<Instruction<'source>> {
    let settle = Instruction::CallFunction(SETTLE, Some(1));
    // A check of two operands returns both.
    let before = |check| [Instruction::CallFunction(check, Some(2)), Instruction::UnpackList(2)];
    let own = instruction.clone();
    match own {
        // Through the formatter, which counts.
        Instruction::EmitRaw(text) => vec![Instruction::LoadConst(Value::from(text)), Instruction::Emit],
        Instruction::StringConcat => [&before(BEFORE_CONCAT)[..], &[own]].concat(),
        Instruction::Add => [&before(BEFORE_ADD)[..], &[own, settle]].concat(),
        Instruction::Mul => [&before(BEFORE_MULTIPLY)[..], &[own, settle]].concat(),
        Instruction::Eq
        | Instruction::Ne
        | Instruction::Gt
        | Instruction::Gte
        | Instruction::Lt
        | Instruction::Lte
        | Instruction::In
        | Instruction::CompareAndPreserve(_) => [&before(BEFORE_COMPARE)[..], &[own]].concat(),
        Instruction::GetItem => [&before(BEFORE_ITEM)[..], &[own]].concat(),
        Instruction::Slice => {
            vec![Instruction::CallFunction(BEFORE_SLICE, Some(4)), Instruction::UnpackList(4), own, settle]
        }
        Instruction::BuildList(_) | Instruction::BuildTuple(_) | Instruction::BuildMap(_) => vec![own, settle],
        Instruction::SetAttr(_) => vec![Instruction::Swap, settle, Instruction::Swap, own],
        _ => vec![own],
    }
}
