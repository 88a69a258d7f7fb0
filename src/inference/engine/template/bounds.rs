//! Limits on what a chat template may allocate. Every byte of text and every list element is counted, before it is
//! allocated where possible, and rendering fails above the limit. Values are limited in depth and cannot contain
//! namespaces, so no value can contain itself.

use minijinja::value::{Rest, ValueKind, ValueOrKwargs};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, Value, escape_formatter, filters, functions, tests,
};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::json::to_json;
use crate::foundation::base::limits::{
    TEMPLATE_COUNT_MAX, TEMPLATE_DEPTH_MAX, TEMPLATE_MADE_BYTES_MAX, TEMPLATE_READ_BYTES_MAX,
    TEMPLATE_RENDERED_BYTES_MAX,
};

// No identifier can begin with these, so templates cannot name them.
pub(super) const BEFORE_CONCAT: &str = "\0concat";
pub(super) const BEFORE_ADD: &str = "\0add";
pub(super) const BEFORE_MULTIPLY: &str = "\0multiply";
pub(super) const BEFORE_COMPARE: &str = "\0compare";
pub(super) const BEFORE_ITEM: &str = "\0item";
pub(super) const BEFORE_SLICE: &str = "\0slice";
pub(super) const SETTLE: &str = "\0settle";

/// Bytes counted per element of a list or dict.
const CELL: usize = 48;
/// Maximum number of bytes of an escaped character.
const ESCAPED: usize = 6;

/// Bytes allocated so far in one rendering.
#[derive(Default)]
struct Made(usize);

/// Bytes read so far in one rendering: an instruction that searches a text costs as much fuel as any other.
#[derive(Default)]
struct Read(usize);

/// Upper bound of the bytes that a function allocates for its arguments; its result is counted separately.
type Estimate = fn(&[Value]) -> Result<usize, Error>;

/// Adds the limited functions and filters, and the checks, to `environment`.
pub(super) fn install(environment: &mut Environment<'_>) {
    // Filters of minijinja that Jinja lacks; they are not limited here.
    for name in ["bool", "chain", "lines", "pprint", "split", "urlencode", "zip"] {
        environment.remove_filter(name);
    }
    environment.remove_global("debug");
    environment.set_formatter(write);
    environment.set_unknown_method_callback(method);
    environment.add_function(BEFORE_CONCAT, |state: &mut State, left: Value, right: Value| {
        let bytes = printed(&left)?.saturating_add(printed(&right)?);
        spend(state, bytes).map(|()| vec![right, left])
    });
    environment.add_function(BEFORE_ADD, |state: &mut State, left: Value, right: Value| {
        spend(state, bytes(&left).saturating_add(bytes(&right))).map(|()| vec![right, left])
    });
    environment.add_function(BEFORE_MULTIPLY, |state: &mut State, left: Value, right: Value| {
        let times = left.as_usize().or_else(|| right.as_usize()).unwrap_or_default();
        spend(state, bytes(&left).max(bytes(&right)).saturating_mul(times)).map(|()| vec![right, left])
    });
    environment.add_function(BEFORE_COMPARE, |state: &mut State, left: Value, right: Value| {
        look(state, bytes(&left).saturating_add(bytes(&right))).map(|()| vec![right, left])
    });
    environment.add_function(BEFORE_ITEM, |state: &mut State, whole: Value, index: Value| {
        // An item of a list is found at once, a character is counted from the beginning.
        look(state, whole.as_str().map_or(0, str::len)).map(|()| vec![index, whole])
    });
    environment.add_function(BEFORE_SLICE, |state: &mut State, whole: Value, from: Value, to: Value, step: Value| {
        look(state, bytes(&whole)).map(|()| vec![step, to, from, whole])
    });
    environment.add_function(SETTLE, settle);
    // The tests that search a text.
    for (name, own) in [
        ("in", Value::from_function(tests::is_in)),
        ("eq", Value::from_function(tests::is_eq)),
        ("equalto", Value::from_function(tests::is_eq)),
        ("==", Value::from_function(tests::is_eq)),
        ("ne", Value::from_function(tests::is_ne)),
        ("!=", Value::from_function(tests::is_ne)),
    ] {
        environment.add_test(name, move |state: &mut State, value: Value, other: Value| -> Result<bool, Error> {
            look(state, bytes(&value).saturating_add(bytes(&other)))?;
            Ok(own.call(state, &[value, other])?.is_true())
        });
    }
    for name in [
        "lower",
        "upper",
        "startingwith",
        "endingwith",
        "containing",
        "lt",
        "lessthan",
        "<",
        "le",
        "<=",
        "gt",
        "greaterthan",
        ">",
        "ge",
        ">=",
    ] {
        environment.remove_test(name);
    }

    let mut function = |name: &'static str, own: Value| environment.add_function(name, bounded(own, nothing));
    function("range", Value::from_function(functions::range));
    function("dict", Value::from_function(functions::dict));
    environment.add_function("namespace", |state: &mut State, defaults: Rest<ValueOrKwargs>| {
        let defaults = defaults.into_values();
        defaults.iter().try_for_each(|value| settle(state, value.clone()).map(drop))?;
        // Not materialised: a namespace is the only mutable value.
        Value::from_function(functions::namespace).call(state, &defaults)
    });

    let mut filter = |name: &'static str, own: Value, estimate: Estimate| {
        environment.add_filter(name, bounded(own, estimate));
    };
    macro_rules! filters {
        ($estimate:expr; $($name:ident)*) => {
            $(filter(stringify!($name), Value::from_function(filters::$name), $estimate);)*
        };
    }
    filters!(nothing; abs capitalize dictsort escape float groupby int items lower map);
    filters!(nothing; max min reject rejectattr reverse round safe select selectattr sort string sum title trim unique);
    filters!(nothing; upper);
    filters!(counted; batch indent slice);
    filters!(formatted; format);
    filters!(joined; join);
    filters!(letters; list);
    filters!(replaced; replace);
    filter("e", Value::from_function(filters::escape), nothing);
    filter("tojson", Value::from_function(to_json), nothing);
    // These look at a value or one item of it, however large it is.
    for (name, own) in [
        ("attr", Value::from_function(filters::attr)),
        ("count", Value::from_function(filters::length)),
        ("d", Value::from_function(filters::default)),
        ("default", Value::from_function(filters::default)),
        ("first", Value::from_function(filters::first)),
        ("last", Value::from_function(filters::last)),
        ("length", Value::from_function(filters::length)),
    ] {
        environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| -> Result<Value, Error> {
            let args = args.into_values();
            // The length of a text counts its characters.
            look(state, args.iter().filter_map(Value::as_str).map(str::len).fold(0, usize::saturating_add))?;
            own.call(state, &args)
        });
    }
}

/// `own` with a limit on its allocation.
fn bounded(
    own: Value,
    estimate: Estimate,
) -> impl Fn(&mut State, Rest<ValueOrKwargs>) -> Result<Value, Error> + Send + Sync + 'static {
    move |state, args| {
        let args = args.into_values();
        call(state, &args, estimate, |state| own.call(state, &args))
    }
}

/// Calls `own` with `args` if the estimated allocation is within the limit.
fn call(
    state: &mut State,
    args: &[Value],
    estimate: Estimate,
    own: impl FnOnce(&mut State) -> Result<Value, Error>,
) -> Result<Value, Error> {
    // Many functions convert arguments to text.
    let read = args.iter().try_fold(0, |sum, value| Ok::<_, Error>(usize::saturating_add(sum, printed(value)?)))?;
    look(state, read)?;
    spend(state, estimate(args)?)?;
    let made = own(state)?;
    settle(state, made)
}

/// Python's methods of strings, lists and dicts.
fn method(state: &mut State, own: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    let all: Vec<Value> = std::iter::once(own).chain(args).cloned().collect();
    let estimate: Estimate = match name {
        "join" => |all| joined(&all.iter().rev().cloned().collect::<Vec<_>>()),
        "replace" => replaced,
        "split" | "splitlines" => pieces,
        "format" => formatted,
        _ => nothing,
    };
    call(state, &all, estimate, |state| unknown_method_callback(state, own, name, args))
}

/// Writes a value to the output or a capture.
fn write(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let bytes = printed(value)?;
    if *state.auto_escape() == AutoEscape::None {
        spend(state, bytes)?;
        return match value.as_str() {
            Some(text) => out.write_str(text).map_err(Error::from),
            None => write!(out, "{value}").map_err(Error::from),
        };
    }
    spend(state, bytes.saturating_mul(ESCAPED))?;
    escape_formatter(out, state, value)
}

/// Counts `bytes` as allocated.
fn spend(state: &mut State, bytes: usize) -> Result<(), Error> {
    let made = state.get_or_insert_extension_with(Made::default);
    made.0 = made.0.saturating_add(bytes);
    if made.0 > TEMPLATE_MADE_BYTES_MAX {
        return Err(refusal(format!("it allocates more than {TEMPLATE_MADE_BYTES_MAX} bytes of text and lists")));
    }
    Ok(())
}

/// Counts `bytes` as read.
fn look(state: &mut State, bytes: usize) -> Result<(), Error> {
    let read = state.get_or_insert_extension_with(Read::default);
    read.0 = read.0.saturating_add(bytes);
    if read.0 > TEMPLATE_READ_BYTES_MAX {
        return Err(refusal(format!(
            "its functions and comparisons read more than {TEMPLATE_READ_BYTES_MAX} bytes of text"
        )));
    }
    Ok(())
}

/// Counts a new text or the elements of a new value, and materialises lazy ones.
fn settle(state: &mut State, value: Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        return spend(state, text.len()).map(|()| value);
    }
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        return Ok(value);
    }
    let mut weight = Weight::default();
    weight.add(&value, 0)?;
    spend(state, weight.cells.saturating_mul(CELL))?;
    if value.kind() == ValueKind::Iterable { Ok(value.try_iter()?.collect()) } else { Ok(value) }
}

/// Size of a value; shared parts are counted every time.
#[derive(Default)]
struct Weight {
    cells: usize,
    text: usize,
}

impl Weight {
    fn add(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > TEMPLATE_DEPTH_MAX {
            return Err(refusal(format!("it nests values deeper than {TEMPLATE_DEPTH_MAX}")));
        }
        self.cells += 1;
        match value.kind() {
            ValueKind::String => self.text = self.text.saturating_add(value.as_str().map_or(0, str::len)),
            ValueKind::Seq | ValueKind::Iterable => {
                value.try_iter()?.try_for_each(|item| self.add(&item, depth + 1))?;
            }
            ValueKind::Map => {
                if depth > 0 && is_namespace(value) {
                    return Err(refusal("it puts a namespace into another value".to_owned()));
                }
                for key in value.try_iter()? {
                    self.add(&key, depth + 1)?;
                    self.add(&value.get_item(&key)?, depth + 1)?;
                }
            }
            _ => {}
        }
        if self.bytes() > TEMPLATE_RENDERED_BYTES_MAX {
            return Err(refusal(format!("a value is larger than {TEMPLATE_RENDERED_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.cells.saturating_mul(CELL).saturating_add(self.text)
    }
}

/// Upper bound of the bytes of `value` as text.
fn printed(value: &Value) -> Result<usize, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.len());
    }
    let mut weight = Weight::default();
    weight.add(value, 0)?;
    Ok(weight.bytes())
}

/// Bytes of a string, or of a list's own elements.
fn bytes(value: &Value) -> usize {
    let cells = || value.len().unwrap_or_default().saturating_mul(CELL);
    value.as_str().map_or_else(cells, str::len)
}

fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

fn refusal(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of estimates")]
fn nothing(_: &[Value]) -> Result<usize, Error> {
    Ok(0)
}

/// Size of splitting the first argument at the second.
#[expect(clippy::unnecessary_wraps, reason = "the signature of estimates")]
fn pieces(args: &[Value]) -> Result<usize, Error> {
    let Some(whole) = args.first().and_then(Value::as_str) else { return Ok(0) };
    let cuts = match args.get(1).and_then(Value::as_str) {
        Some(cut) if !cut.is_empty() => whole.matches(cut).count(),
        _ => whole.chars().filter(|c| c.is_whitespace()).count(),
    };
    Ok(whole.len().saturating_add(cuts.saturating_mul(CELL)))
}

/// Size of a list of a string's characters.
#[expect(clippy::unnecessary_wraps, reason = "the signature of estimates")]
fn letters(args: &[Value]) -> Result<usize, Error> {
    Ok(args.first().and_then(Value::as_str).map_or(0, |text| text.len().saturating_mul(CELL)))
}

/// Size of joining the items of the first argument with the others.
fn joined(args: &[Value]) -> Result<usize, Error> {
    let Some((items, between)) = args.split_first() else { return Ok(0) };
    let count = items.as_str().map(str::len).or_else(|| items.len()).unwrap_or_default();
    Ok(printed(items)?.saturating_add(count.saturating_mul(total(between)?)))
}

/// Size of the first argument with the second replaced by the third.
fn replaced(args: &[Value]) -> Result<usize, Error> {
    let Some((whole, rest)) = args.split_first() else { return Ok(0) };
    let length = printed(whole)?;
    let times = match (whole.as_str(), rest.first().and_then(Value::as_str)) {
        (Some(whole), Some(old)) if !old.is_empty() => whole.matches(old).count(),
        _ => length + 1,
    };
    Ok(length.saturating_add(times.saturating_mul(total(rest.get(1..).unwrap_or_default())?)))
}

/// Size of splitting the first argument into as many lists or lines as the others specify.
fn counted(args: &[Value]) -> Result<usize, Error> {
    let Some((whole, rest)) = args.split_first() else { return Ok(0) };
    let count = greatest(rest)?;
    if count > TEMPLATE_COUNT_MAX {
        return Err(refusal(format!("{count} exceeds the limit of {TEMPLATE_COUNT_MAX} for a width")));
    }
    let lines = whole.as_str().map_or(0, |text| text.matches('\n').count());
    Ok(printed(whole)?.saturating_add(count.saturating_mul(lines + CELL)))
}

/// Size of the first argument with the others inserted, given any widths.
fn formatted(args: &[Value]) -> Result<usize, Error> {
    let Some((whole, rest)) = args.split_first() else { return Ok(0) };
    let form = whole.as_str().unwrap_or_default();
    let places = form.matches(['{', '%']).count();
    let widths = form.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let widest = widths.map(|digits| digits.parse().unwrap_or(usize::MAX)).max().unwrap_or_default();
    let each = total(rest)?.saturating_add(widest).saturating_add(greatest(rest)?);
    Ok(form.len().saturating_add(places.saturating_mul(each)))
}

/// Bytes of `values` as text.
fn total(values: &[Value]) -> Result<usize, Error> {
    values.iter().map(printed).try_fold(0, |sum, bytes| Ok(usize::saturating_add(sum, bytes?)))
}

/// The largest absolute value of an integer among `values`, including those in dicts.
fn greatest(values: &[Value]) -> Result<usize, Error> {
    let mut greatest = 0;
    for value in values {
        let own = match value.kind() {
            ValueKind::Number => i64::try_from(value.clone()).map_or(usize::MAX, |n| n.unsigned_abs() as usize),
            ValueKind::Map => {
                let inner = value.try_iter()?.map(|key| value.get_item(&key)).collect::<Result<Vec<_>, _>>()?;
                inner
                    .into_iter()
                    .filter_map(|n| i64::try_from(n).ok())
                    .map(|n| n.unsigned_abs() as usize)
                    .max()
                    .unwrap_or(0)
            }
            _ => 0,
        };
        greatest = greatest.max(own);
    }
    Ok(greatest)
}
